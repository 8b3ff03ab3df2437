use super::*;
use crate::data::image::{Format, Spool};
use crate::data::mrc::{Header, MrcMode};

const SPEC: PatchSpec = PatchSpec {
    size: 8,
    batch: 5,
    augment: true,
    budget: 1 << 30,
    seed: 3,
};

/// A pixel says which image it is of and where.
fn image(number: usize, width: usize, height: usize) -> Image {
    Image {
        width,
        height,
        pixels: (0..width * height)
            .map(|i| (number * 10_000 + i) as f32)
            .collect(),
    }
}

fn plane(image: Image, normalisation: Normalisation) -> Plane {
    let file = ImageFile::from_images("test", vec![image]).unwrap();
    Plane::new(Arc::new(file), vec![0], normalisation).unwrap()
}

fn scenes() -> Vec<Scene> {
    let shift = Normalisation {
        centre: -0.25,
        scale: 1.0,
    };
    (0..3)
        .map(|n| {
            let (width, height) = (20 + n, 11 + 3 * n);
            Scene {
                input: plane(image(n, width, height), Normalisation::IDENTITY),
                target: Some(plane(image(n, width, height), shift)),
            }
        })
        .collect()
}

/// The smallest budget that still streams.
fn streaming_budget(spec: &PatchSpec) -> u64 {
    2 * spec.batch_bytes(true) + 8 * (spec.size * spec.size) as u64 + stream::READING
}

#[test]
fn patches_are_windows_of_their_images_in_all_eight_orientations() {
    let mut patches = Patches::new(scenes(), SPEC, "patches").unwrap();
    assert!(!patches.streamed());
    let widths = [20, 21, 22];
    let mut seen = std::collections::BTreeSet::new();
    let mut images = std::collections::BTreeSet::new();
    for step in 0..60 {
        let batch = patches.batch(step).unwrap();
        for (input, target) in batch
            .inputs
            .chunks_exact(64)
            .zip(batch.targets.chunks_exact(64))
        {
            // Input and target are cut at the same place in the same orientation.
            assert!(input.iter().zip(target).all(|(i, t)| t - i == 0.25));
            let number = input[0] as usize / 10_000;
            images.insert(number);
            let at = |i: usize| {
                let place = input[i] as usize % 10_000;
                let width = widths[number];
                (place / width, place % width)
            };
            let (y, x) = at(0);
            let step_of = |i: usize| {
                let (b, a) = at(i);
                (b as i32 - y as i32, a as i32 - x as i32)
            };
            let (right, down) = (step_of(1), step_of(8));
            seen.insert((right, down));
            // A turn or flip: the two steps are unit vectors at right angles, everywhere.
            assert_eq!(right.0 * down.0 + right.1 * down.1, 0);
            for i in 0..64 {
                let (r, c) = ((i / 8) as i32, (i % 8) as i32);
                let expected = (
                    r * down.0 + c * right.0 + y as i32,
                    r * down.1 + c * right.1 + x as i32,
                );
                let (b, a) = at(i);
                assert_eq!((b as i32, a as i32), expected);
            }
        }
    }
    assert_eq!(seen.len(), 8);
    assert_eq!(images.len(), 3);
}

#[test]
fn every_place_is_drawn_alike() {
    let spec = PatchSpec {
        augment: false,
        batch: 1,
        ..SPEC
    };
    let patches = Patches::new(scenes(), spec, "patches").unwrap();
    let places = *patches.sampler.places_up_to.last().unwrap();
    // 13·4 + 14·7 + 15·10 places.
    assert_eq!(places, 52 + 98 + 150);
    let mut counts = std::collections::BTreeMap::new();
    let draws = 30_000;
    for step in 0..draws {
        let draw = patches.sampler.draw(step, 0);
        *counts.entry((draw.scene, draw.y, draw.x)).or_insert(0_u64) += 1;
    }
    assert_eq!(counts.len() as u64, places);
    // Each count is binomial, of mean 100; six deviations cover all 300 with near certainty.
    assert!(counts.values().all(|&c| (40..160).contains(&c)));
}

#[test]
fn a_step_gives_the_same_batch_in_memory_and_streamed_whatever_came_before() {
    let mut held = Patches::new(scenes(), SPEC, "patches").unwrap();
    let spec = PatchSpec {
        budget: streaming_budget(&SPEC),
        ..SPEC
    };
    // Planes of a thousand pixels fit any budget that streaming needs, so these are larger.
    let large = |budget| {
        let spec = PatchSpec { budget, ..spec };
        let scene = Scene {
            input: plane(image(1, 700, 600), Normalisation::IDENTITY),
            target: Some(plane(image(1, 700, 600), Normalisation::IDENTITY)),
        };
        Patches::new(vec![scene], spec, "patches").unwrap()
    };
    let mut in_memory = large(1 << 30);
    let mut streamed = large(streaming_budget(&spec));
    assert!(!in_memory.streamed() && streamed.streamed());
    // In order, repeated, jumping forwards and back, as runs, resumed runs and validation do.
    for step in [0, 1, 2, 3, 3, 10, 11, 4, 5, 0, 1, 1_000_000] {
        let expected = in_memory.batch(step).unwrap().clone();
        assert_eq!(streamed.batch(step).unwrap(), &expected, "step {step}");
        // A fresh one, as after a kill, continues alike.
        assert_eq!(large(1 << 30).batch(step).unwrap(), &expected);
    }
    let first = held.batch(7).unwrap().clone();
    for threads in [1, 2, 7] {
        let again = parallel::with_threads(threads, || {
            let mut patches = Patches::new(scenes(), SPEC, "patches").unwrap();
            patches.batch(7).unwrap().clone()
        });
        assert_eq!(again, first);
    }
    assert_ne!(held.batch(8).unwrap(), &first);
    let mut other = Patches::new(scenes(), PatchSpec { seed: 4, ..SPEC }, "patches").unwrap();
    assert_ne!(other.batch(7).unwrap(), &first);
    let mut validation = Patches::new(scenes(), SPEC, "validation patches").unwrap();
    assert_ne!(validation.batch(7).unwrap(), &first);
}

/// A process of several reads its own patches, from memory and from the disk: the others stay zero.
#[test]
fn of_a_shared_batch_only_ones_own_patches_are_cut_or_read() {
    let patches = |budget| {
        let spec = PatchSpec { budget, ..SPEC };
        let scene = Scene {
            input: plane(image(1, 700, 600), Normalisation::IDENTITY),
            target: Some(plane(image(1, 700, 600), Normalisation::IDENTITY)),
        };
        Patches::new(vec![scene], spec, "patches").unwrap()
    };
    let pixels = SPEC.size * SPEC.size;
    for budget in [1 << 30, streaming_budget(&SPEC)] {
        let (mut whole, mut part) = (patches(budget), patches(budget));
        part.only(1..3);
        for step in 0..4 {
            let (whole, part) = (whole.batch(step).unwrap(), part.batch(step).unwrap());
            for (whole, part) in [
                (&whole.inputs, &part.inputs),
                (&whole.targets, &part.targets),
            ] {
                let own = pixels..3 * pixels;
                assert!(part[own.clone()] == whole[own.clone()], "step {step}");
                let mut others = part.iter().enumerate().filter(|(i, _)| !own.contains(i));
                assert!(others.all(|(_, &pixel)| pixel == 0.0), "step {step}");
            }
        }
    }
}

#[test]
fn frames_are_averaged_and_normalised_alike_in_memory_and_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("movie.mrcs");
    let frames: Vec<Image> = (0..4).map(|n| image(n, 600, 500)).collect();
    let mut header = Header::new(600, 500, 4, MrcMode::F32);
    header.add_label("a movie");
    let mut writer =
        crate::data::image::ImageWriter::create(&path, 600, 500, 4, &Format::Mrc(header.into()))
            .unwrap();
    for frame in &frames {
        writer.write_rows(&frame.pixels).unwrap();
    }
    writer.finish().unwrap();
    let file = Arc::new(ImageFile::open(&path, &Spool::new().unwrap()).unwrap());
    let scene = Scene {
        input: Plane::normalised(file.clone(), vec![0, 2]).unwrap(),
        target: Some(Plane::normalised(file.clone(), vec![1, 3]).unwrap()),
    };
    let spec = PatchSpec {
        augment: false,
        ..SPEC
    };
    let mut held = Patches::new(vec![scene.clone()], spec, "patches").unwrap();
    let spec = PatchSpec {
        budget: streaming_budget(&spec),
        ..spec
    };
    let mut streamed = Patches::new(vec![scene], spec, "patches").unwrap();
    assert!(streamed.streamed());
    assert_eq!(held.batch(0).unwrap(), streamed.batch(0).unwrap());
    let odd = Image::mean(&[frames[0].clone(), frames[2].clone()]).unwrap();
    let normalisation = Normalisation::of(&mut odd.pixels.clone());
    let draw = held.sampler.draw(0, 1);
    let mut expected = vec![0.0; 64];
    let window = Rect {
        x: draw.x,
        y: draw.y,
        width: 8,
        height: 8,
    };
    odd.window(window, &mut expected);
    normalisation.apply(&mut expected);
    assert_eq!(held.batch(0).unwrap().inputs[64..128], expected);
    // A file that goes away while it is streamed is an error that names it.
    std::fs::remove_file(&path).unwrap();
    let error = (1..20).find_map(|step| streamed.batch(step).err()).unwrap();
    assert!(error.to_string().contains("movie.mrcs"), "{error}");
    assert!(streamed.batch(50).is_err());
}

#[test]
fn what_does_not_fit_is_named() {
    let message = |scenes, spec| {
        Patches::new(scenes, spec, "patches")
            .unwrap_err()
            .to_string()
    };
    assert!(message(Vec::new(), SPEC).contains("at least one"));
    assert!(message(scenes(), PatchSpec { size: 12, ..SPEC }).contains("20 × 11"));
    assert!(message(scenes(), PatchSpec { batch: 0, ..SPEC }).contains("at least one"));
    assert!(message(scenes(), PatchSpec { budget: 10, ..SPEC }).contains("memory budget"));
    let mut mixed = scenes();
    mixed[1].target = None;
    assert!(message(mixed, SPEC).contains("none"));
    let mut other = scenes();
    other[1].target = Some(plane(image(1, 30, 30), Normalisation::IDENTITY));
    assert!(message(other, SPEC).contains("30 × 30"));
    let file = Arc::new(ImageFile::from_images("one", vec![image(0, 9, 9)]).unwrap());
    assert!(Plane::new(file, vec![1], Normalisation::IDENTITY).is_err());
}

#[test]
fn files_are_split_whole_and_by_the_seed() {
    let (train, validation) = split_by_file(10, 0.2, 1).unwrap();
    assert_eq!((train.len(), validation.len()), (8, 2));
    let mut all = [train.clone(), validation].concat();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert_eq!(split_by_file(10, 0.2, 1).unwrap().0, train);
    assert!((2..9).any(|seed| split_by_file(10, 0.2, seed).unwrap().0 != train));
    assert_eq!(split_by_file(2, 0.01, 1).unwrap().1.len(), 1);
    assert_eq!(split_by_file(2, 0.99, 1).unwrap().0.len(), 1);
    assert_eq!(split_by_file(1, 0.5, 1).unwrap(), (vec![0], Vec::new()));
    assert_eq!(split_by_file(5, 0.0, 1).unwrap().1.len(), 0);
    assert!(split_by_file(5, 1.0, 1).is_err());
    assert!(split_by_file(5, f64::NAN, 1).is_err());
}
