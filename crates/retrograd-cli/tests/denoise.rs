//! `retrograd train` and `retrograd run` on images, as a user types them.

use std::path::Path;
use std::process::{Command, Output};

use retrograd::data::image::Image;
use retrograd::data::mrc::{self, Header, MrcFile, MrcMode};

fn retrograd(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_retrograd"))
        .current_dir(folder)
        .args(args)
        .output()
        .expect("the command starts")
}

fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = retrograd(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn fail(folder: &Path, args: &[&str]) -> String {
    let output = retrograd(folder, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const EXPERIMENT: &str = r#"
name = "halves"
[model]
family = "denoise"
layers = [
    { kind = "conv2d", out = 4, kernel = 3, padding = 1 },
    { kind = "relu" },
    { kind = "conv2d", out = 1, kernel = 3, padding = 1 },
]
[data]
method = "noise2noise"
inputs = ["odd"]
targets = ["even/*.mrc"]
patch = 24
steps_per_epoch = 10
[train]
epochs = 4
batch = 4
optimizer = { kind = "adam", lr = 0.01 }
"#;

/// Four exposures of a micrograph in halves, and the first one without noise.
fn write_micrographs(folder: &Path) {
    let micrograph = retrograd::data::synthetic::Micrograph {
        width: 90,
        height: 70,
        ..Default::default()
    };
    std::fs::create_dir(folder.join("odd")).unwrap();
    std::fs::create_dir(folder.join("even")).unwrap();
    let write = |path: &str, image: &Image| {
        let mut header = Header::new(90, 70, 1, MrcMode::F32);
        header.set_voxel_size([1.25, 1.25, 1.0]);
        mrc::write(folder.join(path), header, &[image]).unwrap();
    };
    for n in 0..4 {
        let exposure = micrograph.generate(7, n);
        write(&format!("odd/{n}.mrc"), &exposure.odd);
        write(&format!("even/e{n}.mrc"), &exposure.even);
        if n == 0 {
            write("clean.mrc", &exposure.clean);
        }
    }
}

/// The number at the end of a line that begins so.
fn figure(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|l| l.starts_with(name)).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn micrographs_are_trained_on_denoised_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_micrographs(folder);
    std::fs::write(folder.join("halves.toml"), EXPERIMENT).unwrap();
    let text = succeed(folder, &["train", "halves.toml", "--out", "run"]);
    assert!(text.contains("odd_even_correlation_after"), "{text}");
    let report = std::fs::read_to_string(folder.join("run/report.html")).unwrap();
    assert!(report.contains("Before and after") && report.contains("data:image/png;base64"));

    let text = succeed(
        folder,
        &[
            "run",
            "run",
            "odd/0.mrc",
            "--out",
            "out",
            "--reference",
            "clean.mrc",
            "--memory-mib",
            "64",
        ],
    );
    assert!(
        figure(&text, "PSNR after") > figure(&text, "PSNR before"),
        "{text}"
    );
    assert!(
        figure(&text, "SSIM after") > figure(&text, "SSIM before"),
        "{text}"
    );
    let out = MrcFile::open(folder.join("out/0.mrc")).unwrap();
    assert_eq!(out.header().voxel_size(), [1.25, 1.25, 1.0]);
    assert!(out.header().labels()[0].contains("denoised by halves"));

    let halves = [
        "run",
        "run",
        "odd/1.mrc",
        "even/e1.mrc",
        "--halves",
        "--out",
        "pair",
    ];
    let text = succeed(folder, &halves);
    let (before, after) = (
        figure(&text, "odd/even before"),
        figure(&text, "odd/even after"),
    );
    assert!(after > before, "{text}");
    for line in [
        "FRC 0.5 before",
        "FRC 0.143 before",
        "FRC 0.5 after",
        "FRC 0.143 after",
    ] {
        assert!(text.contains(line), "{text}");
    }
    // Two folders stand for their images of equal names.
    for (half, from) in [("half1", "odd/1.mrc"), ("half2", "even/e1.mrc")] {
        std::fs::create_dir(folder.join(half)).unwrap();
        std::fs::copy(folder.join(from), folder.join(half).join("a.mrc")).unwrap();
    }
    let both = ["run", "run", "half1", "half2", "--halves", "--out", "both"];
    let again = succeed(folder, &both);
    assert!(figure(&again, "odd/even after") == after, "{again}");
    assert!(folder.join("both/half1/a.mrc").exists() && folder.join("both/half2/a.mrc").exists());
    std::fs::create_dir(folder.join("none")).unwrap();
    let none = ["run", "run", "half1", "none", "--halves", "--out", "other"];
    assert!(fail(folder, &none).contains("no images of equal names"));
    assert!(!folder.join("other").exists());
    outputs_are_those_that_were_asked_for(folder);
}

/// The same bits on any number of threads, and never onto an input.
fn outputs_are_those_that_were_asked_for(folder: &Path) {
    let one = ["run", "run", "odd/0.mrc", "--out", "one", "--threads", "1"];
    succeed(folder, &one);
    let read = |path: &str| std::fs::read(folder.join(path)).unwrap();
    assert!(read("one/0.mrc") == read("out/0.mrc"));
    let text = fail(folder, &["run", "run", "odd/0.mrc", "--out", "odd"]);
    assert!(text.contains("0.mrc is an input; choose another"), "{text}");
    let bytes = read("odd/0.mrc");
    // One input into one file, of its own kind; several into a folder.
    succeed(folder, &["run", "run", "odd/0.mrc", "--out", "alone.mrc"]);
    assert!(read("alone.mrc") == read("out/0.mrc"));
    let text = fail(folder, &["run", "run", "odd/0.mrc", "--out", "alone.mrc"]);
    assert!(text.contains("alone.mrc is there already"), "{text}");
    let args = ["run", "run", "odd/1.mrc", "--out", "alone.mrc", "--force"];
    succeed(folder, &args);
    assert!(read("alone.mrc") != read("out/0.mrc"));
    let text = fail(folder, &["run", "run", "odd/0.mrc", "--out", "alone.png"]);
    assert!(text.contains("ends in .mrc"), "{text}");
    let two = ["run", "run", "odd/0.mrc", "odd/1.mrc", "--out", "two.mrc"];
    assert!(fail(folder, &two).contains("a folder for 2 inputs"));
    std::fs::write(folder.join("cut.mrc"), &bytes[..2000]).unwrap();
    let text = fail(folder, &["run", "run", "cut.mrc"]);
    assert!(
        text.contains("cut.mrc") && text.contains("byte 2000"),
        "{text}"
    );
    // A command that failed leaves no folder.
    fail(folder, &["run", "run", "cut.mrc", "--out", "never"]);
    assert!(!folder.join("never").exists() && !folder.join("run/denoised").exists());
    assert!(fail(folder, &["run", "run"]).contains("needs at least one image"));
}

/// Trained on movies whose frames are averaged: `run` averages a movie, too, bins as in training, and
/// says both. TIFFs stay what they are, or become floats.
#[test]
fn movies_are_averaged_and_binned_in_run_as_in_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let micrograph = retrograd::data::synthetic::Micrograph {
        width: 96,
        height: 64,
        ..Default::default()
    };
    std::fs::create_dir(folder.join("movies")).unwrap();
    for n in 0..3 {
        let frames: Vec<Image> = (0..4)
            .map(|f| micrograph.generate(7, 10 * n + f).odd)
            .collect();
        let mut header = Header::new(96, 64, 4, MrcMode::F32);
        header.set_voxel_size([1.5, 1.5, 1.0]);
        let path = folder.join(format!("movies/{n}.mrcs"));
        mrc::write(path, header, &frames.iter().collect::<Vec<_>>()).unwrap();
        if n == 0 {
            let mean = Image::mean(&frames).unwrap();
            let header = Header::new(96, 64, 1, MrcMode::F32);
            mrc::write(folder.join("mean.mrc"), header, &[&mean]).unwrap();
            let whole = Image {
                pixels: mean.pixels.iter().map(|p| (p * 100.0).round()).collect(),
                ..mean
            };
            let format = retrograd::data::image::Format::Tiff { bits: 16 };
            whole.write(folder.join("mean.tif"), &format).unwrap();
        }
    }
    let experiment = EXPERIMENT
        .replace(
            "inputs = [\"odd\"]\n",
            "frames = [\"movies/*.mrcs\"]\nbin = 2\n",
        )
        .replace("targets = [\"even/*.mrc\"]\n", "")
        .replace("epochs = 4", "epochs = 1");
    std::fs::write(folder.join("movies.toml"), experiment).unwrap();
    succeed(
        folder,
        &["train", "movies.toml", "--out", "run", "--no-verify"],
    );
    let text = succeed(
        folder,
        &["run", "run", "movies/0.mrcs", "--out", "movie.mrcs"],
    );
    assert!(
        text.contains("4 frames to one image, as in training"),
        "{text}"
    );
    assert!(text.contains("2 × 2 pixels to one, 48 × 32"), "{text}");
    succeed(folder, &["run", "run", "mean.mrc", "--out", "one.mrc"]);
    let [movie, one] = ["movie.mrcs", "one.mrc"].map(|p| MrcFile::open(folder.join(p)).unwrap());
    assert_eq!(movie.header().size(), [48, 32, 1]);
    assert_eq!(movie.header().voxel_size()[..2], [3.0, 3.0]);
    let whole = retrograd::data::image::Rect::whole(48, 32);
    let mut pixels = [vec![0.0; 48 * 32], vec![0.0; 48 * 32]];
    movie.read_window(0, whole, &mut pixels[0]).unwrap();
    one.read_window(0, whole, &mut pixels[1]).unwrap();
    // Averaged before or after binning: the same but for the rounding of the mean's f32 pixels.
    let largest = pixels[0].iter().fold(0.0_f32, |a, b| a.max(b.abs()));
    let pairs = pixels[0].iter().zip(&pixels[1]);
    let worst = pairs.fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst <= 1e-5 * largest, "{worst} of {largest}");
    // A TIFF of whole numbers stays one, and becomes floats where that is asked for.
    let spool = retrograd::data::image::Spool::new().unwrap();
    for (out, options, bits) in [("a.tif", &[][..], 16), ("b.tif", &["--float"][..], 32)] {
        let args = [
            &["run", "run", "mean.tif", "--bin", "1", "--out", out][..],
            options,
        ]
        .concat();
        succeed(folder, &args);
        let file = retrograd::data::image::ImageFile::open(folder.join(out), &spool).unwrap();
        assert_eq!(file.format, retrograd::data::image::Format::Tiff { bits });
        assert_eq!((file.width, file.height), (96, 64));
    }
    let said = fail(
        folder,
        &["run", "run", "mean.mrc", "--bin", "0", "--out", "c.mrc"],
    );
    assert!(said.contains("--bin"), "{said}");
}

/// Pairs of halves of generated micrographs as MotionCor names them, the true image of the first beside
/// their folder.
fn micrographs(folder: &Path, name: &str, dose: f64, count: u64, side: usize) {
    let micrograph = retrograd::data::synthetic::Micrograph {
        width: side,
        height: side,
        dose,
        ..Default::default()
    };
    std::fs::create_dir(folder.join(name)).unwrap();
    let write = |path: String, image: &Image| {
        let header = Header::new(side, side, 1, MrcMode::F32);
        mrc::write(folder.join(path), header, &[image]).unwrap();
    };
    for n in 0..count {
        let exposure = micrograph.generate(3, n);
        write(format!("{name}/m{n}_ODD.mrc"), &exposure.odd);
        write(format!("{name}/m{n}_EVN.mrc"), &exposure.even);
        if n == 0 {
            write(format!("{name}-clean.mrc"), &exposure.clean);
        }
    }
}

/// `init` measures the signal and takes the network that pays there, by the table of docs/denoise.md:
/// the doses are some of its rows.
#[test]
fn init_takes_the_network_that_pays_for_the_signal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (dose, correlation, network) in [
        (20.0, 0.00..0.15, "unet-small"),
        (150.0, 0.15..0.45, "unet-small"),
        (1000.0, 0.60..0.84, "unet-small"),
        (4000.0, 0.86..0.99, "simple-cnn"),
    ] {
        let name = format!("dose{dose}");
        micrographs(folder, &name, dose, 2, 256);
        let text = succeed(folder, &["init", &name]);
        let line = text
            .lines()
            .find(|l| l.starts_with("network"))
            .expect(&text);
        assert!(line.contains(&format!("{network}: ")), "{line}");
        let (_, after) = line.split_once("correlate by ").expect(line);
        let measured: f64 = after.split(')').next().unwrap().parse().unwrap();
        assert!(correlation.contains(&measured), "{measured} at {dose}");
        let draft = std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let written = format!("architecture = \"{network}\"");
        assert!(draft.contains(&written), "{draft}");
    }
}

/// An image smoothed by a Gaussian of a width, and mirrored at its edges.
fn smoothed(image: &Image, sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma).ceil() as isize;
    let weights: Vec<f64> = (-radius..=radius)
        .map(|i| (-(i * i) as f64 / (2.0 * sigma * sigma)).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    let (width, height) = (image.width as isize, image.height as isize);
    let mirrored = |i: isize, n: isize| {
        let i = i.rem_euclid(2 * n);
        i.min(2 * n - 1 - i)
    };
    let pass = |from: &[f64], across: bool| -> Vec<f64> {
        let at = |x: isize, y: isize| from[(y * width + x) as usize];
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let value = |(x, y): (isize, isize)| {
            let terms = weights.iter().zip(-radius..=radius).map(|(w, d)| {
                w * match across {
                    true => at(mirrored(x + d, width), y),
                    false => at(x, mirrored(y + d, height)),
                }
            });
            terms.sum::<f64>() / sum
        };
        places.map(value).collect()
    };
    let pixels: Vec<f64> = image.pixels.iter().map(|&p| p.into()).collect();
    pass(&pass(&pixels, true), false)
}

/// At an odd/even correlation of 0.05 a short training of what `init` writes is better than a Gaussian
/// filter whose width was chosen with the true image: three convolutions never got there.
#[test]
fn the_default_denoiser_beats_the_best_gaussian_at_low_signal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    micrographs(folder, "weak", 20.0, 6, 192);
    succeed(folder, &["init", "weak"]);
    // A quarter of the steps that the draft asks for.
    let draft = std::fs::read_to_string(folder.join("weak.toml")).unwrap();
    let epochs = draft.lines().find_map(|l| l.strip_prefix("epochs = "));
    let epochs: u64 = epochs.expect("epochs").trim().parse().unwrap();
    let epochs = (epochs / 4).to_string();
    let train = ["train", "weak.toml", "--epochs", &epochs, "--no-verify"];
    succeed(folder, &[&train[..], &["--no-report"]].concat());
    let input = "weak/m0_ODD.mrc";
    succeed(folder, &["run", "runs/weak", input, "--out", "out.mrc"]);
    let read = |path: &str| {
        let file = MrcFile::open(folder.join(path)).unwrap();
        let [width, height, _] = file.header().size();
        let mut pixels = vec![0.0; width * height];
        let whole = retrograd::data::image::Rect::whole(width, height);
        file.read_window(0, whole, &mut pixels).unwrap();
        Image {
            width,
            height,
            pixels,
        }
    };
    let (noisy, clean, denoised) = (read(input), read("weak-clean.mrc"), read("out.mrc"));
    // A half has its own scale: what counts is how far it is from the truth after the best line.
    let error = |pixels: &[f64]| {
        let truth: Vec<f64> = clean.pixels.iter().map(|&p| p.into()).collect();
        let n = truth.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let (a, b) = (mean(pixels), mean(&truth));
        let pairs = || pixels.iter().zip(&truth);
        let both: f64 = pairs().map(|(p, t)| (p - a) * (t - b)).sum();
        let own: f64 = pixels.iter().map(|p| (p - a) * (p - a)).sum();
        let scale = both / own;
        let squares = pairs().map(|(p, t)| (scale * (p - a) - (t - b)).powi(2));
        squares.sum::<f64>() / n
    };
    let widths = (2..=24).map(|half| f64::from(half) / 2.0);
    let best = widths
        .map(|sigma| error(&smoothed(&noisy, sigma)))
        .fold(f64::INFINITY, f64::min);
    let ours: Vec<f64> = denoised.pixels.iter().map(|&p| p.into()).collect();
    let gain = 10.0 * (best / error(&ours)).log10();
    assert!(gain > 0.5, "{gain:.2} dB over the best Gaussian");
}
