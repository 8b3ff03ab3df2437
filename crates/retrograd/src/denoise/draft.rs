//! An experiment for a folder of images: pairs of halves where names show them, single images
//! elsewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{DenoiseDataSpec, DenoiserSpec};
use crate::data::denoise::Method;
use crate::data::image::{ImageFile, Rect, Spool};
use crate::data::quality::correlation;
use crate::family::draft::{
    Draft, InitOptions, Place, counted, list, quoted, remark, some, thousands,
};
use crate::{Error, Result};

/// The endings of image files; `data.inputs` takes the same ones from a folder.
const ENDINGS: [&str; 8] = [
    ".mrc", ".mrcs", ".mrc.gz", ".mrcs.gz", ".png", ".tif", ".tiff", ".npy",
];
/// Words in the names of two files of the same scene, and what they are to each other.
const PAIRS: [(&str, &str, Method); 6] = [
    ("odd", "even", Method::Noise2noise),
    // As MotionCor writes them.
    ("odd", "evn", Method::Noise2noise),
    ("half1", "half2", Method::Noise2noise),
    ("half_1", "half_2", Method::Noise2noise),
    ("noisy", "clean", Method::Supervised),
    ("low", "high", Method::Supervised),
];
/// The side of a patch, and the smallest one that a network of radius 3 learns anything from.
const PATCH: usize = 64;
const SMALLEST: usize = 16;
const BATCH: usize = 8;
/// Optimizer steps after which these networks have learnt most of what they can.
const STEPS: usize = 2_000;
/// Above this correlation of an image with its partner three convolutions, which see 7 pixels, do as
/// well as the small U-Net for a quarter of the work. Below it the neighbourhood must be wide: under
/// 0.4 a Gaussian filter would be better than them (`bench/denoise`, the table of docs/denoise.md).
const STRONG: f64 = 0.85;

/// Looks at a folder and drafts its experiment.
pub(super) fn draft(options: &InitOptions, place: &Place) -> Result<Option<Draft>> {
    let folder = &options.data;
    // Labels and targets of a folder are those of graphs.
    let graphs = options.labels.is_some() || options.target.is_some();
    if !folder.is_dir() || crate::graph::takes(folder) || (graphs && images_in(folder)?.is_empty())
    {
        return Ok(None);
    }
    for (option, given) in [
        ("--target", options.target.is_some()),
        ("--features", options.features.is_some()),
        ("--labels", options.labels.is_some()),
        ("--links", options.links),
        ("--kan", options.kan),
        ("--task", options.task.is_some()),
    ] {
        if given {
            let folder = folder.display();
            return Err(Error::refused(
                option,
                format!("{folder} is a folder of images, which has none"),
            ));
        }
    }
    folder_of_images(folder, options.bin.unwrap_or(1), place).map(Some)
}

fn folder_of_images(folder: &Path, bin: usize, place: &Place) -> Result<Draft> {
    let files = images_in(folder)?;
    let pairing = match Pairing::by_name(folder, &files) {
        Some(pairing) => pairing,
        None => match Pairing::by_folder(folder)? {
            Some(pairing) => pairing,
            None if files.is_empty() => {
                let problem = format!(
                    "{} holds no image: needs files that end in {}, or two folders of them, odd \
                     and even, or noisy and clean; or graphs, .graphml or .gml",
                    folder.display(),
                    ENDINGS.join(", ")
                );
                return Err(Error::refused("init", problem));
            }
            None => Pairing {
                method: Method::Noise2void,
                inputs: files,
                targets: Vec::new(),
                alone: 0,
                why: "no two names show halves of one scene (odd and even, noisy and clean)".into(),
            },
        },
    };
    let found = Found::open(&pairing, bin)?;
    let patch = PATCH.min(found.smallest / 8 * 8);
    if patch < SMALLEST {
        let problem = format!(
            "the smallest image of {} has a side of {} pixels, needs at least {SMALLEST}",
            folder.display(),
            found.smallest
        );
        return Err(Error::refused("init", problem));
    }
    let text = text(folder, place, &pairing, &found, patch)?;
    let experiment = place.experiment(&text)?;
    DenoiserSpec::parse(&experiment.model)?;
    DenoiseDataSpec::parse(&experiment.data)?;

    let mut findings = vec![("images", found.sentence())];
    let method = match pairing.method {
        Method::Noise2noise => "noise2noise",
        Method::Supervised => "supervised",
        Method::Noise2void => "noise2void",
    };
    findings.push(("method", format!("{method}: {}", pairing.why)));
    if pairing.alone > 0 {
        let text = format!("{} without a partner", counted(pairing.alone, "image"));
        findings.push(("left out", text));
    }
    if found.stacks > 0 {
        findings.push((
            "note",
            format!(
                "{} of several sections: every section is taken for an image of its own; frames of \
                 a movie go under `frames` instead",
                counted(found.stacks, "file")
            ),
        ));
    }
    for warning in &found.warnings {
        findings.push(("warning", warning.clone()));
    }
    findings.push(("network", found.reason()));
    findings.push(("patches", format!("{patch} × {patch} pixels")));
    let first = &pairing.inputs[0];
    let ending = ending(first).unwrap_or(".mrc");
    let shown = first.parent().unwrap_or(folder).join(format!("*{ending}"));
    Ok(Draft {
        text,
        findings,
        inputs: format!("{} --out denoised", shown.display()),
    })
}

/// The known ending of a file's name.
fn ending(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    // The longest first: `.mrc.gz` before nothing at all.
    let mut endings = ENDINGS;
    endings.sort_by_key(|e| std::cmp::Reverse(e.len()));
    endings.into_iter().find(|e| name.ends_with(e))
}

/// The images of a folder, in alphabetical order.
pub(super) fn images_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io(folder, "read the folder"))?.path();
        let hidden = path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if !hidden && path.is_file() && ending(&path).is_some() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether there is an image in a folder, or in a folder within it.
pub(crate) fn holds_images(folder: &Path) -> bool {
    let any = |folder: &Path| images_in(folder).is_ok_and(|files| !files.is_empty());
    let within = || std::fs::read_dir(folder).into_iter().flatten().flatten();
    any(folder) || within().any(|entry| any(&entry.path()))
}

/// Which images are learnt from, and how.
struct Pairing {
    method: Method,
    inputs: Vec<PathBuf>,
    /// One for every input, but for noise2void.
    targets: Vec<PathBuf>,
    /// Images that have no partner.
    alone: usize,
    why: String,
}

impl Pairing {
    /// Pairs in one folder: `x_odd.mrc` and `x_even.mrc`.
    fn by_name(folder: &Path, files: &[PathBuf]) -> Option<Self> {
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: BTreeSet<String> = files.iter().filter_map(name).collect();
        for (first, second, method) in PAIRS {
            let (mut inputs, mut targets) = (Vec::new(), Vec::new());
            for input in &names {
                if let Some(target) = renamed(input, first, second)
                    && names.contains(&target)
                {
                    inputs.push(folder.join(input));
                    targets.push(folder.join(target));
                }
            }
            if let (Some(a), Some(b)) = (inputs.first(), targets.first()) {
                let why = format!(
                    "{} by name, such as {} and {}",
                    counted(inputs.len(), "pair"),
                    name(a).unwrap_or_default(),
                    name(b).unwrap_or_default()
                );
                return Some(Pairing {
                    method,
                    alone: files.len() - 2 * inputs.len(),
                    inputs,
                    targets,
                    why,
                });
            }
        }
        None
    }

    /// Pairs in two folders, `odd/` and `even/`, under the same name in both, or with the words
    /// exchanged.
    fn by_folder(folder: &Path) -> Result<Option<Self>> {
        let mut folders = BTreeSet::new();
        let entries = std::fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))?;
        for entry in entries {
            let path = entry.map_err(Error::io(folder, "read the folder"))?.path();
            if path.is_dir() {
                folders.insert(path);
            }
        }
        for (first, second, method) in PAIRS {
            for a in &folders {
                let Some(name) = a.file_name().map(|n| n.to_string_lossy().into_owned()) else {
                    continue;
                };
                let Some(b) = renamed(&name, first, second).map(|b| folder.join(b)) else {
                    continue;
                };
                if !folders.contains(&b) {
                    continue;
                }
                let (from, to) = (images_in(a)?, images_in(&b)?);
                let (mut inputs, mut targets) = (Vec::new(), Vec::new());
                for input in &from {
                    let name = input.file_name().unwrap_or_default().to_string_lossy();
                    let other = renamed(&name, first, second).map(|n| b.join(n));
                    let partner = [Some(b.join(&*name)), other]
                        .into_iter()
                        .flatten()
                        .find(|p| to.contains(p));
                    if let Some(target) = partner {
                        inputs.push(input.clone());
                        targets.push(target);
                    }
                }
                if inputs.is_empty() {
                    continue;
                }
                let why = format!(
                    "{} in the folders {} and {}",
                    counted(inputs.len(), "pair"),
                    name,
                    b.file_name().unwrap_or_default().to_string_lossy()
                );
                return Ok(Some(Pairing {
                    method,
                    alone: from.len() + to.len() - 2 * inputs.len(),
                    inputs,
                    targets,
                    why,
                }));
            }
        }
        Ok(None)
    }
}

/// A name with the last occurrence of a word replaced, in the case that it has there. The word
/// stands alone: letters beside it would make it another one ("model" holds no "low").
fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let forms = [
        (from.to_string(), to.to_string()),
        (capital(from), capital(to)),
        (from.to_uppercase(), to.to_uppercase()),
    ];
    forms.iter().find_map(|(from, to)| {
        let at = name.rfind(from.as_str())?;
        let (before, after) = (&name[..at], &name[at + from.len()..]);
        let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        if letter(before.chars().next_back()) || letter(after.chars().next()) {
            return None;
        }
        Some(format!("{before}{to}{after}"))
    })
}

/// What opening the images showed.
struct Found {
    files: usize,
    images: usize,
    pixels: usize,
    smallest: usize,
    sizes: BTreeSet<(usize, usize)>,
    stacks: usize,
    warnings: Vec<String>,
    /// The correlation of the first pair or, without pairs, of neighbouring pixels: the share of the
    /// variance that is signal.
    correlation: Option<f64>,
    paired: bool,
    /// Pixels that become one.
    bin: usize,
}

impl Found {
    /// The network that pays for this much signal.
    fn architecture(&self) -> &'static str {
        match self.correlation {
            Some(r) if r > STRONG => "simple-cnn",
            _ => "unet-small",
        }
    }

    /// Why that network.
    fn reason(&self) -> String {
        let Some(r) = self.correlation else {
            return "unet-small: the two images differ in size, so the signal can't be measured; it \
                    pays where that is weak"
                .to_string();
        };
        let which = match self.paired {
            true => "the first two",
            false => "neighbouring pixels",
        };
        match r > STRONG {
            true => format!(
                "simple-cnn: the signal is strong ({which} correlate by {r:.3}), a narrow view will do"
            ),
            false => format!(
                "unet-small: noise hides the signal ({which} correlate by {r:.3}), which needs a wide view"
            ),
        }
    }

    fn open(pairing: &Pairing, bin: usize) -> Result<Self> {
        let mut found = Found {
            files: 0,
            images: 0,
            pixels: 0,
            smallest: usize::MAX,
            sizes: BTreeSet::new(),
            stacks: 0,
            warnings: Vec::new(),
            correlation: first_correlation(pairing, bin)?,
            paired: !pairing.targets.is_empty(),
            bin,
        };
        for (i, path) in pairing.inputs.iter().chain(&pairing.targets).enumerate() {
            // A spool for each: what was unpacked goes with it.
            let file = ImageFile::open(path, &Spool::new()?)?.binned(bin)?;
            let warnings = file.warnings.iter();
            let named = warnings.map(|w| format!("{}: {w}", path.display()));
            found.warnings.extend(named);
            found.files += 1;
            found.images += file.sections;
            found.stacks += usize::from(file.sections > 1);
            found.smallest = found.smallest.min(file.width).min(file.height);
            found.sizes.insert((file.width, file.height));
            if i < pairing.inputs.len() {
                found.pixels += file.width * file.height * file.sections;
            }
        }
        Ok(found)
    }

    fn sentence(&self) -> String {
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(w, h)| format!("{w} × {h}"))
            .collect();
        let of = if self.images == self.files {
            counted(self.files, "image")
        } else {
            format!(
                "{} in {}",
                counted(self.images, "image"),
                counted(self.files, "file")
            )
        };
        let binned = match self.bin {
            1 => String::new(),
            bin => format!(" after {bin} × {bin} pixels became one"),
        };
        format!("{of} of {}{binned}", some(sizes.iter().map(String::as_str)))
    }
}

/// How an image correlates with its partner, in their middles. Without a partner, how its pixels do
/// with their neighbours: noise of a pixel is its own, so what neighbours share is signal.
fn first_correlation(pairing: &Pairing, bin: usize) -> Result<Option<f64>> {
    const LOOKED_AT: usize = 1024;
    let Some(first) = pairing.inputs.first() else {
        return Ok(None);
    };
    let spool = Spool::new()?;
    let a = ImageFile::open(first, &spool)?.binned(bin)?;
    let (width, height) = (a.width.min(LOOKED_AT), a.height.min(LOOKED_AT));
    let window = Rect {
        x: (a.width - width) / 2,
        y: (a.height - height) / 2,
        width,
        height,
    };
    let mut pixels = vec![0.0; window.pixels()];
    a.read_window(0, window, &mut pixels)?;
    if let Some(second) = pairing.targets.first() {
        let b = ImageFile::open(second, &spool)?.binned(bin)?;
        if (a.width, a.height) != (b.width, b.height) {
            return Ok(None);
        }
        let mut others = vec![0.0; window.pixels()];
        b.read_window(0, window, &mut others)?;
        return Ok(Some(correlation(&pixels, &others)));
    }
    if width < 2 || height < 2 {
        return Ok(None);
    }
    let rows = || pixels.chunks_exact(width);
    let left: Vec<f32> = rows().flat_map(|row| &row[..width - 1]).copied().collect();
    let right: Vec<f32> = rows().flat_map(|row| &row[1..]).copied().collect();
    let [above, below] = [&pixels[..pixels.len() - width], &pixels[width..]];
    let (across, down) = (correlation(&left, &right), correlation(above, below));
    Ok(Some((across + down) / 2.0))
}

/// The lists of a pairing as the file writes them: patterns where two patterns say the same.
fn sources(place: &Place, pairing: &Pairing) -> Result<(String, Option<String>)> {
    let relative = |paths: &[PathBuf]| -> Result<Vec<String>> {
        paths.iter().map(|p| place.relative(p)).collect()
    };
    let (inputs, targets) = (relative(&pairing.inputs)?, relative(&pairing.targets)?);
    let parent = |paths: &[PathBuf]| -> Result<Option<String>> {
        match paths.first().and_then(|p| p.parent()) {
            Some(folder) => place.relative(folder).map(Some),
            None => Ok(None),
        }
    };
    if pairing.targets.is_empty() {
        // All images of the folder.
        let folder = parent(&pairing.inputs)?.unwrap_or_default();
        return Ok((list([folder.as_str()]), None));
    }
    let pattern = |names: &[String], paths: &[PathBuf]| pattern(names, paths);
    let (a, b) = (
        pattern(&inputs, &pairing.inputs),
        pattern(&targets, &pairing.targets),
    );
    if let (Some(a), Some(b)) = (a, b) {
        return Ok((list([a.as_str()]), Some(list([b.as_str()]))));
    }
    let lines = |names: &[String]| {
        let lines: String = names
            .iter()
            .map(|n| format!("  {},\n", quoted(n)))
            .collect();
        format!("[\n{lines}]")
    };
    Ok((lines(&inputs), Some(lines(&targets))))
}

/// A pattern with one `*` that names exactly these files of their folder, in this order.
fn pattern(names: &[String], paths: &[PathBuf]) -> Option<String> {
    let first = names.first()?;
    let same_start = |a: &str, b: &str| -> usize {
        let pairs = a.chars().zip(b.chars());
        pairs
            .take_while(|(x, y)| x == y)
            .map(|(x, _)| x.len_utf8())
            .sum()
    };
    let reversed = |s: &str| s.chars().rev().collect::<String>();
    let mut start = first.len();
    let mut end = first.len();
    for name in names {
        start = start.min(same_start(first, name));
        end = end.min(same_start(&reversed(first), &reversed(name)));
    }
    // A single pair says nothing about what its name shares with those to come.
    if names.len() < 2 || names.iter().any(|n| n.len() < start + end) {
        return None;
    }
    let (start, end) = (&first[..start], &first[first.len() - end..]);
    let folder = paths.first()?.parent()?;
    let files = images_in(folder).ok()?;
    let base = start.rsplit('/').next().unwrap_or_default();
    let matching: Vec<&PathBuf> = files
        .iter()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.len() >= base.len() + end.len() && name.starts_with(base) && name.ends_with(end)
        })
        .collect();
    (!end.contains('/') && matching.iter().copied().eq(paths.iter()))
        .then(|| format!("{start}*{end}"))
}

fn text(
    folder: &Path,
    place: &Place,
    pairing: &Pairing,
    found: &Found,
    patch: usize,
) -> Result<String> {
    let (inputs, targets) = sources(place, pairing)?;
    let sources = match (pairing.method, targets) {
        (Method::Noise2noise, Some(targets)) => format!(
            "# Two noisy images of each scene; the noise of one cannot be learnt from the other's.\n\
             method = \"noise2noise\"\n\
             inputs = {inputs}\n\
             targets = {targets}    # in the order of the inputs\n"
        ),
        (Method::Supervised, Some(targets)) => format!(
            "# Noisy images, and the same scenes clean.\n\
             method = \"supervised\"\n\
             inputs = {inputs}\n\
             targets = {targets}    # in the order of the inputs\n"
        ),
        _ => format!(
            "# Single images: a pixel is predicted from its neighbours, which know nothing of its\n\
             # own noise. With two halves of each scene, noise2noise removes more:\n\
             #   method = \"noise2noise\", inputs = [\"odd/*.mrc\"], targets = [\"even/*.mrc\"]\n\
             #   or frames = [\"movies/*.mrcs\"], whose frames are split odd and even\n\
             method = \"noise2void\"\n\
             inputs = {inputs}\n"
        ),
    };
    let steps = (found.pixels / (patch * patch * BATCH)).max(1);
    let epochs = (STEPS / steps).clamp(5, 200);
    let shown = folder.file_name().unwrap_or_default().to_string_lossy();
    let about = format!("Denoises {}: {}", shown, found.sentence());
    let single = pairing.inputs.len() < 2;
    let validation = if single {
        "validation = 0.0        # a single file cannot be split\n"
    } else {
        "validation = 0.2        # the share of the files that is measured on, not trained on\n"
    };
    Ok(format!(
        "# Written by retrograd init. Change what you like; every setting that is not here has\n\
         # its default.\n\
         #\n\
         #   retrograd train {file}\n\
         #   retrograd run runs/{name} IMAGE … --out denoised\n\
         \n\
         name = {quoted_name}\n\
         about = {about}\n\
         \n\
         [model]\n\
         family = \"denoise\"\n\
         # {reason}.\n\
         # \"simple-cnn\" has three convolutions and 2,625 parameters, \"unet-small\" sees 52 pixels\n\
         # around each with 122,033; \"unet\" (1.9 million) can remove more noise, and takes longer.\n\
         architecture = \"{architecture}\"\n\
         \n\
         [data]\n\
         {sources}\
         {bin}\
         patch = {patch}\n\
         {validation}\
         # memory_mib = 2048     # images beyond it are streamed from disk; there are {mib} MiB\n\
         \n\
         [train]\n\
         epochs = {epochs}\n\
         batch = {BATCH}\n\
         loss = \"mse\"\n\
         optimizer = {{ kind = \"adam\", lr = 2e-3 }}\n\
         schedule = {{ kind = \"cosine\" }}\n",
        bin = match found.bin {
            1 => String::new(),
            bin => format!(
                "bin = {bin}                 # {bin} × {bin} pixels become one, in `run`, too\n"
            ),
        },
        reason = found.reason(),
        architecture = found.architecture(),
        file = remark(&place.file.display().to_string()),
        name = place.name,
        quoted_name = quoted(&place.name),
        about = quoted(&about),
        mib = thousands((found.pixels * 4).div_ceil(1 << 20)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_exchanged_where_they_stand_alone() {
        let even = |name| renamed(name, "odd", "even");
        assert_eq!(even("x_odd.mrc").as_deref(), Some("x_even.mrc"));
        assert_eq!(even("X_ODD_1.mrc").as_deref(), Some("X_EVEN_1.mrc"));
        assert_eq!(even("Odd-7.png").as_deref(), Some("Even-7.png"));
        assert_eq!(even("oddity.png"), None);
        assert_eq!(renamed("yellow.png", "low", "high"), None);
    }

    /// As MotionCor and RELION name the halves of a scene, and as people do.
    #[test]
    fn halves_are_pairs_by_their_names() {
        for (a, b, method) in [
            ("m1_ODD.mrc", "m1_EVN.mrc", Method::Noise2noise),
            ("m1_odd.mrc", "m1_even.mrc", Method::Noise2noise),
            (
                "run_half1_class001_unfil.mrc",
                "run_half2_class001_unfil.mrc",
                Method::Noise2noise,
            ),
            ("m1_half_1.mrc", "m1_half_2.mrc", Method::Noise2noise),
            ("m1_noisy.png", "m1_clean.png", Method::Supervised),
        ] {
            let files = [a, b, "other.mrc"].map(PathBuf::from);
            let pairing = Pairing::by_name(Path::new(""), &files).expect(a);
            assert_eq!(pairing.inputs, [PathBuf::from(a)]);
            assert_eq!(pairing.targets, [PathBuf::from(b)]);
            assert!(pairing.method == method && pairing.alone == 1, "{a}");
        }
        let files = ["m1_first.mrc", "m1_second.mrc"].map(PathBuf::from);
        assert!(Pairing::by_name(Path::new(""), &files).is_none());
    }

    #[test]
    fn a_pattern_stands_for_its_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let names = ["a_even.png", "a_odd.png", "b_even.png", "b_odd.png"];
        for name in names {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let of = |wanted: &[&str]| {
            let paths: Vec<_> = wanted.iter().map(|n| folder.join(n)).collect();
            let names: Vec<_> = wanted.iter().map(|n| format!("in/{n}")).collect();
            pattern(&names, &paths)
        };
        let odd = of(&["a_odd.png", "b_odd.png"]);
        assert_eq!(odd.as_deref(), Some("in/*_odd.png"));
        // b_odd.png isn't among them, but the pattern would take it.
        std::fs::write(folder.join("c_odd.png"), "").unwrap();
        assert_eq!(of(&["a_odd.png", "b_odd.png"]), None);
    }
}
