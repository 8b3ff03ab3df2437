use crate::layer::activation::LeakyReluSpec;
use crate::layer::add::AddSpec;
use crate::layer::concat::ConcatSpec;
use crate::layer::conv_transpose2d::ConvTranspose2dSpec;
use crate::layer::conv2d::Conv2dSpec;
use crate::layer::norm::GroupNormSpec;
use crate::layer::pool::MaxPool2dSpec;
use crate::layer::upsample::UpsampleSpec;
use proptest::prelude::*;

use super::*;
use crate::data::image::{Image, ImageFile, Spool};
use crate::data::mrc::{self, Header, MrcFile, MrcMode};
use crate::data::tiles::Tiling;
use crate::network::{Network, PaddingMode};
use crate::train::{Experiment, Session, Stepper, Task};
use crate::{Kernels, Loss, Model, Pass, parallel};

/// A small U-Net with every way down and up: pooling, a strided convolution, upsampling, a
/// transposed convolution, reflection, concatenation, addition.
fn small_unet() -> Vec<LayerSpec> {
    let reflect = LayerSpec::Conv2d(Conv2dSpec {
        out: 3,
        kernel: 3,
        stride: 1,
        padding: 1,
        padding_mode: PaddingMode::Reflect,
        dilation: 1,
        groups: 1,
        bias: true,
    });
    let strided = LayerSpec::Conv2d(Conv2dSpec {
        out: 4,
        kernel: 3,
        stride: 2,
        padding: 1,
        padding_mode: PaddingMode::Zeros,
        dilation: 1,
        groups: 1,
        bias: true,
    });
    vec![
        reflect,
        LayerSpec::relu(),
        LayerSpec::MaxPool2d(MaxPool2dSpec {
            kernel: 2,
            stride: None,
        }),
        LayerSpec::conv2d(4, 3, 1),
        LayerSpec::LeakyRelu(LeakyReluSpec { slope: 0.1 }),
        strided,
        LayerSpec::silu(),
        LayerSpec::ConvTranspose2d(ConvTranspose2dSpec {
            out: 4,
            kernel: 2,
            stride: 2,
            padding: 0,
            bias: true,
        }),
        LayerSpec::Add(AddSpec { with: 4 }),
        LayerSpec::Upsample(UpsampleSpec { scale: 2 }),
        LayerSpec::Concat(ConcatSpec { with: 1 }),
        LayerSpec::conv2d(1, 3, 1),
        LayerSpec::Add(AddSpec { with: -1 }),
    ]
}

fn small_cnn() -> Vec<LayerSpec> {
    vec![
        LayerSpec::conv2d(4, 3, 1),
        LayerSpec::relu(),
        LayerSpec::conv2d(3, 5, 2),
        LayerSpec::tanh(),
        LayerSpec::conv2d(1, 3, 1),
    ]
}

fn denoiser(layers: &[LayerSpec], seed: u64) -> Denoiser {
    let network = Network::new(&network_spec(layers, 32, 32)).unwrap();
    let params = network.init(seed);
    Denoiser::new(layers.to_vec(), params, network.buffers()).unwrap()
}

fn picture(width: usize, height: usize) -> Image {
    let mut stream = crate::rng::Key::new(8).purpose("denoise test").stream();
    Image {
        width,
        height,
        pixels: (0..width * height)
            .map(|i| (50.0 + 20.0 * (i as f64 * 0.3).sin() + 5.0 * stream.normal()) as f32)
            .collect(),
    }
}

#[test]
fn the_architectures_have_their_known_sizes_and_radii() {
    for (architecture, params, halo, align) in [
        (Architecture::SimpleCnn, Some(2_625), 3, 1),
        (Architecture::Deep12, Some(93_089), 12, 1),
        (Architecture::Unet, None, 0, 8),
        (Architecture::UnetSmall, None, 0, 8),
    ] {
        let layers = architecture.layers();
        let network = Network::new(&network_spec(&layers, 64, 64)).unwrap();
        assert_eq!(network.output_shape(), [1, 64, 64]);
        let reach = Reach::of(&layers).unwrap();
        assert_eq!(reach.align, align);
        if let Some(params) = params {
            assert_eq!(network.layout().len(), params);
            assert_eq!(reach.halo, halo);
        } else {
            if architecture == Architecture::UnetSmall {
                assert_eq!(network.layout().len(), 122_033);
            }
            // Down: (2 + 2·2 + 2·4 + 2·8), up: blocks of 4, 2, 1 pixels and the convolutions
            // 2·4 + 2·2 + 2·1 + 1.
            assert_eq!(
                reach.halo,
                (2 + 4 + 8 + 16) + (4 + 8) + (2 + 4) + (1 + 2) + 1
            );
        }
    }
}

#[test]
fn a_pixel_beyond_the_reach_changes_nothing_and_one_within_it_does() {
    for layers in [small_cnn(), small_unet()] {
        let denoiser = denoiser(&layers, 3);
        let reach = denoiser.reach();
        let side = 64;
        let network = Network::new(&network_spec(&layers, side, side)).unwrap();
        let output = |x: &Vec<f32>| {
            let mut tape = Default::default();
            let params = network.init(3);
            network.compute_forward(&params, x, &Pass::inference(), &mut tape);
            network.output(&tape).to_vec()
        };
        let x = picture(side, side).pixels;
        let y = output(&x);
        let mut farthest = 0;
        for (px, py) in [(32, 32), (31, 33), (29, 30), (35, 28)] {
            let mut changed = x.clone();
            changed[py * side + px] += 100.0;
            for (i, (a, b)) in output(&changed).iter().zip(&y).enumerate() {
                let (qx, qy) = (i % side, i / side);
                let distance = qx.abs_diff(px).max(qy.abs_diff(py));
                if a != b {
                    farthest = farthest.max(distance);
                }
            }
        }
        assert!(farthest <= reach.halo, "{farthest} {reach:?}");
        // Without poolings the reach is exact; with them it covers the worst place in a block.
        assert!(farthest > reach.halo / 2, "{farthest} {reach:?}");
        if reach.align == 1 {
            assert_eq!(farthest, reach.halo);
        }
    }
}

#[test]
fn networks_that_see_the_whole_image_are_refused() {
    let message = |layers: Vec<LayerSpec>| Reach::of(&layers).unwrap_err().to_string();
    let flat = vec![LayerSpec::flatten(), LayerSpec::dense(64)];
    assert!(message(flat).contains("whole image"));
    assert!(
        message(vec![LayerSpec::GroupNorm(GroupNormSpec { groups: 1 })]).contains("group_norm")
    );
    assert!(message(vec![LayerSpec::Upsample(UpsampleSpec { scale: 2 })]).contains("own size"));
    let pooled = vec![LayerSpec::MaxPool2d(MaxPool2dSpec {
        kernel: 2,
        stride: None,
    })];
    assert!(message(pooled).contains("2 times smaller"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn tiled_inference_equals_whole_image_inference_to_the_bit(
        width in 17_usize..90,
        height in 17_usize..90,
        tile in 8_usize..60,
        lanes in 1_usize..4,
        which in 0_usize..3,
    ) {
        let layers = [small_cnn(), small_unet(), Architecture::SimpleCnn.layers()][which].clone();
        let denoiser = denoiser(&layers, 5);
        let image = picture(width, height);
        let reach = denoiser.reach();
        let whole = TilePlan {
            tiling: Tiling::whole(width, height, reach.align).unwrap(),
            lanes: 1,
        };
        let tiled = TilePlan {
            tiling: Tiling::new(tile, reach.halo, reach.align).unwrap(),
            lanes,
        };
        let expected = denoiser.denoise(&image, &whole).unwrap();
        let got = denoiser.denoise(&image, &tiled).unwrap();
        prop_assert!(expected.pixels.iter().zip(&got.pixels).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn plans_fit_their_memory_or_say_what_they_need() {
    let denoiser = denoiser(&Architecture::SimpleCnn.layers(), 1);
    parallel::with_threads(2, || {
        let large = denoiser.plan(1 << 30).unwrap();
        assert_eq!((large.tiling.tile, large.lanes), (512, 2));
        let small = denoiser.plan(8 << 20).unwrap();
        assert!(small.tiling.tile < 512 && small.tiling.tile >= 64);
        let text = denoiser.plan(1 << 10).unwrap_err().to_string();
        assert!(text.contains("at least"), "{text}");
        // What it asks for is enough.
        let needed: u64 = text
            .split("at least ")
            .nth(1)
            .and_then(|t| t.split(' ').next())
            .and_then(|n| n.parse().ok())
            .unwrap();
        assert_eq!(denoiser.plan(needed).unwrap().lanes, 1);
    });
}

#[test]
fn a_denoised_mrc_file_keeps_its_header_and_gains_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (
        folder.path().join("in.mrcs"),
        folder.path().join("out.mrcs"),
    );
    let mut header = Header::new(70, 41, 2, MrcMode::U16);
    header.set_voxel_size([1.5, 1.5, 1.0]);
    header.set_origin([7.0, 8.0, 9.0]);
    header.set_extended(*b"FEI1", vec![3; 77]);
    header.add_label("from the microscope");
    let image = picture(70, 41);
    mrc::write(&from, header, &[&image, &image]).unwrap();
    let file = ImageFile::open(&from, &Spool::new().unwrap()).unwrap();
    let denoiser = denoiser(&small_unet(), 2);
    let plan = TilePlan {
        tiling: Tiling::new(16, denoiser.reach().halo, denoiser.reach().align).unwrap(),
        lanes: 2,
    };
    let mut rows = Vec::new();
    denoiser
        .denoise_file(&file, &to, "retrograd: denoised", &plan, |done| {
            rows.push(done)
        })
        .unwrap();
    assert_eq!(rows.last(), Some(&82));
    let out = MrcFile::open(&to).unwrap();
    let header = out.header();
    assert_eq!(header.mode(), MrcMode::F32);
    assert_eq!(header.voxel_size(), [1.5, 1.5, 1.0]);
    assert_eq!(header.origin(), [7.0, 8.0, 9.0]);
    assert_eq!(header.extended, vec![3; 77]);
    assert_eq!(
        header.labels(),
        ["from the microscope", "retrograd: denoised"]
    );
    // Both sections are the same image, and equal what is denoised in memory.
    let rounded = file.read_section(0).unwrap();
    let expected = denoiser.denoise(&rounded, &plan).unwrap();
    assert_eq!(out.read_section(0).unwrap(), expected);
    assert_eq!(out.read_section(1).unwrap(), expected);
    let [low, high, ..] = header.statistics();
    let pixels = &expected.pixels;
    assert_eq!(low, pixels.iter().copied().fold(f32::INFINITY, f32::min));
    assert_eq!(
        high,
        pixels.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    );
}

fn experiment(method: &str, more_model: &str, more_data: &str, epochs: u64) -> Experiment {
    let text = format!(
        "name = \"test\"
[model]
family = \"denoise\"
layers = [
    {{ kind = \"conv2d\", out = 4, kernel = 3, padding = 1 }},
    {{ kind = \"relu\" }},
    {{ kind = \"conv2d\", out = 1, kernel = 3, padding = 1 }},
]
{more_model}
[data]
method = \"{method}\"
patch = 24
validation = 0.3
steps_per_epoch = 6
{more_data}
[train]
epochs = {epochs}
batch = 4
seed = 5
optimizer = {{ kind = \"adam\", lr = 0.01 }}
"
    );
    Experiment::parse(&text, "test.toml").unwrap()
}

const GENERATE: &str =
    "generate = { kind = \"micrograph\", count = 4, width = 60, height = 50, dose = 20.0 }";

#[test]
fn every_method_learns_and_reports_what_it_can_measure() {
    for method in ["supervised", "noise2noise", "noise2void"] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let experiment = experiment(method, "", GENERATE, 8);
        let mut task = DenoiseTask::new(&experiment).unwrap();
        assert!(!task.streamed());
        let before = task.evaluate(&task.model().init(5), 0).unwrap();
        let summary = Session::new(experiment)
            .in_folder(&run)
            .fit(&mut task)
            .unwrap();
        assert_eq!(before[0].0, "validation_loss");
        assert!(summary.validation_loss.unwrap() < before[0].1, "{method}");
        let json = summary.to_json();
        // The clean image of generated micrographs is known; denoising brings the noisy one closer.
        let figure = |name: &str| json[name].as_f64().unwrap_or_else(|| panic!("{name}"));
        assert!(
            figure("psnr_after") > figure("psnr_before"),
            "{method}: {json}"
        );
        if method == "noise2noise" {
            assert!(figure("odd_even_correlation_after") > figure("odd_even_correlation_before"));
            assert!(run.join("example-odd.mrc").is_file());
            assert!(run.join("example-even.mrc").is_file());
        }
        for name in [
            "before-after.png",
            "example-noisy.mrc",
            "example-denoised.mrc",
        ] {
            assert!(run.join(name).is_file(), "{name}");
        }
        // The trained run applies to files, and gives what the report shows.
        let denoiser = Denoiser::open(&run).unwrap();
        let plan = denoiser.plan(64 << 20).unwrap();
        let spool = Spool::new().unwrap();
        let noisy = ImageFile::open(run.join("example-noisy.mrc"), &spool).unwrap();
        let out = run.join("again.mrc");
        denoiser
            .denoise_file(&noisy, &out, "again", &plan, |_| {})
            .unwrap();
        let again = ImageFile::open(&out, &spool)
            .unwrap()
            .read_section(0)
            .unwrap();
        let shown = ImageFile::open(run.join("example-denoised.mrc"), &spool).unwrap();
        for (a, b) in again
            .pixels
            .iter()
            .zip(&shown.read_section(0).unwrap().pixels)
        {
            // The noisy file went through its units once more: a few roundings of values near 10.
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }
}

/// MRC halves that stream: larger than the smallest budget in MiB.
fn files_to_stream(folder: &std::path::Path) -> String {
    for half in ["odd", "even"] {
        std::fs::create_dir(folder.join(half)).unwrap();
        for n in 0..4 {
            let mut image = picture(500, 400);
            image.pixels.rotate_left(n * 1000 + half.len());
            let header = Header::new(500, 400, 1, MrcMode::F32);
            mrc::write(
                folder.join(half).join(format!("{n}.mrc")),
                header,
                &[&image],
            )
            .unwrap();
        }
    }
    let path = |half: &str| folder.join(half).display().to_string();
    format!(
        "inputs = [\"{}\"]\ntargets = [\"{}/*.mrc\"]\nmemory_mib = 5",
        path("odd"),
        path("even")
    )
}

#[test]
fn a_run_that_was_killed_resumes_to_the_bit_in_memory_and_streamed_on_any_threads() {
    let folder = tempfile::tempdir().unwrap();
    let streamed = files_to_stream(folder.path());
    for (name, data) in [("memory", GENERATE), ("streamed", streamed.as_str())] {
        let train = |run: &str, epochs, resume: bool, threads| {
            let path = folder.path().join(format!("{name}-{run}"));
            parallel::with_threads(threads, || {
                let experiment = experiment("noise2noise", "", data, epochs);
                let mut task = DenoiseTask::new(&experiment).unwrap();
                assert_eq!(task.streamed(), name == "streamed");
                let session = Session::new(experiment);
                let mut session = match resume {
                    true => session.resuming(&path),
                    false => session.in_folder(&path),
                };
                session.fit(&mut task).unwrap();
            });
            std::fs::read(path.join("model.safetensors")).unwrap()
        };
        let whole = train("whole", 3, false, 1);
        train("parts", 1, false, 2);
        assert!(train("parts", 3, true, 7) == whole, "{name}");
        assert!(train("threads", 3, false, 7) == whole, "{name}");
    }
}

#[test]
fn image_terms_reach_the_gradient() {
    // One step with and without terms: the difference of the losses is the terms' value, and the
    // gradient is that of the sum, seen by a central difference on one weight.
    let with = experiment(
        "noise2noise",
        "loss_terms = { ssim = 0.5, gradient = 0.25 }",
        GENERATE,
        1,
    );
    let mut task = DenoiseTask::new(&with).unwrap();
    let mut example = None;
    task.batch(0, &mut example).unwrap();
    let example = example.unwrap();
    let params = task.model().init(1);
    let pass = Pass {
        kernels: Kernels::Reference,
        ..Pass::inference()
    };
    let loss_at = |params: &[f32], terms: bool| {
        let mut stepper = Stepper::new(task.model(), params.to_vec(), with.train.optimizer);
        stepper.image_loss = task.image_loss().filter(|_| terms);
        let loss = stepper.gradient(task.model(), Loss::Mse, &example, &pass, 1.0, false);
        (loss.unwrap(), stepper.grads().to_vec())
    };
    let (plain, plain_grads) = loss_at(&params, false);
    let (loss, grads) = loss_at(&params, true);
    let network = task.model();
    let mut tape = Default::default();
    network.compute_forward(&params, &example.input, &pass, &mut tape);
    let mut terms = task.image_loss().unwrap();
    let extra = terms.compute(network.output(&tape), &example.target.values, None);
    assert!((loss - plain - extra).abs() < 1e-12 && extra > 0.0);
    // A weight of the last layer: no ReLU is crossed between the two sides.
    let i = params.len() - 5;
    let h = 1e-2_f32;
    let moved = |d: f32| {
        let mut params = params.clone();
        params[i] += d;
        loss_at(&params, true).0
    };
    let slope = (moved(h) - moved(-h)) / f64::from(2.0 * h);
    // f32 losses of about 1 carry 1e-7; over 2h that is 1e-5. The terms' share is far larger.
    assert!(
        (slope - f64::from(grads[i])).abs() < 2e-3 * slope.abs().max(0.1),
        "{slope}"
    );
    assert!((slope - f64::from(plain_grads[i])).abs() > 1e-2 * slope.abs());
}

#[test]
fn wrong_experiments_are_named() {
    let message = |experiment: &Experiment| match DenoiseTask::new(experiment) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let none = experiment("noise2noise", "", "", 1);
    assert!(message(&none).contains("no images"));
    let terms = experiment("noise2void", "loss_terms = { ssim = 1.0 }", GENERATE, 1);
    assert!(message(&terms).contains("noise2void"));
    let both = experiment("noise2noise", "architecture = \"unet\"", GENERATE, 1);
    assert!(message(&both).contains("one of the two"));
    let unknown = experiment("noise2noise", "", "patches = 3", 1);
    assert!(message(&unknown).contains("patches"));
    let missing = experiment("noise2void", "", "inputs = [\"nowhere/*.mrc\"]", 1);
    assert!(message(&missing).contains("nowhere"));
    let mut loss = experiment("noise2noise", "", GENERATE, 1);
    loss.train.loss = Some(Loss::CrossEntropy);
    assert!(message(&loss).contains("cross_entropy"));
}
