//! `retrograd verify --library`: kernels of a shared library, by the protocol of `include/retrograd.h`.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use libloading::Library;
use retrograd::rng::Key;
use retrograd::verify::{self, Function, Input, Reference, Report, Round};

use crate::exit::Result;

/// `RETROGRAD_PROTOCOL` and `RETROGRAD_MOST` of the header.
const PROTOCOL: usize = 1;
const MOST: usize = 16;

/// Sizes that are drawn for a function.
const DRAWS: usize = 8;

type RoundInC = extern "C" fn(*mut c_void, f64) -> f64;
type Lengths = unsafe extern "C" fn(*const usize, *mut usize, *mut usize);
type Forward = unsafe extern "C" fn(*const usize, *const *const f32, *const *mut f32);
type Backward =
    unsafe extern "C" fn(*const usize, *const *const f32, *const *const f32, *const *mut f32);
type ReferenceForward =
    unsafe extern "C" fn(*const usize, RoundInC, *mut c_void, *const *const f64, *const *mut f64);
type ReferenceBackward = unsafe extern "C" fn(
    *const usize,
    RoundInC,
    *mut c_void,
    *const *const f64,
    *const *const f64,
    *const *mut f64,
);

/// `retrograd_function` of the header.
#[repr(C)]
struct InC {
    protocol: usize,
    name: *const c_char,
    sizes: usize,
    largest: *const usize,
    inputs: usize,
    outputs: usize,
    input_names: *const *const c_char,
    lengths: Option<Lengths>,
    forward: Option<Forward>,
    backward: Option<Backward>,
    reference_forward: Option<ReferenceForward>,
    reference_backward: Option<ReferenceBackward>,
}

/// A function of a library, read and checked.
struct Kernel {
    name: String,
    largest: Vec<usize>,
    input_names: Vec<String>,
    outputs: usize,
    lengths: Lengths,
    forward: Forward,
    backward: Backward,
    reference: Option<(ReferenceForward, ReferenceBackward)>,
}

/// Checks every function of a library at drawn sizes.
pub fn check(path: &Path) -> Result<Report> {
    let library = open(path)?;
    let mut report = Report::default();
    for kernel in kernels(&library).with_context(|| path.display().to_string())? {
        for sizes in draws(&kernel.largest) {
            report.extend(kernel.check(&sizes)?);
        }
    }
    Ok(report)
}

#[allow(unsafe_code, reason = "code of a library")]
fn open(path: &Path) -> Result<Library> {
    // The dynamic linker looks for bare names elsewhere.
    let whole = path
        .canonicalize()
        .with_context(|| path.display().to_string())?;
    // SAFETY: what a library does when it is loaded is its own; it was named to be run.
    unsafe { Library::new(&whole) }.with_context(|| format!("{}: not a library", path.display()))
}

#[allow(unsafe_code, reason = "a table of a library")]
fn kernels(library: &Library) -> Result<Vec<Kernel>> {
    type Functions = unsafe extern "C" fn(usize) -> *const InC;
    // SAFETY: the header gives this name this type.
    let functions = unsafe { library.get::<Functions>(b"retrograd_functions\0") }
        .context("got no function retrograd_functions, needs one (include/retrograd.h)")?;
    let mut kernels = Vec::new();
    // SAFETY: as the header says: a table that stays, or null after the last.
    while let Some(told) = unsafe { functions(kernels.len()).as_ref() } {
        kernels.push(Kernel::read(told)?);
        ensure!(
            kernels.len() <= 1000,
            "got more than 1000 functions: needs NULL after the last"
        );
    }
    ensure!(!kernels.is_empty(), "got no function, needs one at least");
    Ok(kernels)
}

/// Text of C's; its place in the table is said where it is missing.
#[allow(unsafe_code, reason = "text of a library")]
fn text(what: &str, given: *const c_char) -> Result<String> {
    ensure!(!given.is_null(), "{what}: got NULL, needs a name");
    // SAFETY: the header asks for text that ends with 0.
    let told = unsafe { CStr::from_ptr(given) };
    Ok(told.to_string_lossy().into_owned())
}

impl Kernel {
    #[allow(unsafe_code, reason = "arrays of a library")]
    fn read(told: &InC) -> Result<Self> {
        let protocol = told.protocol;
        ensure!(
            protocol == PROTOCOL,
            "protocol: got {protocol}, needs {PROTOCOL}"
        );
        let name = text("name", told.name)?;
        for (what, count, least) in [
            ("sizes", told.sizes, 0),
            ("inputs", told.inputs, 1),
            ("outputs", told.outputs, 1),
        ] {
            let fits = (least..=MOST).contains(&count);
            ensure!(fits, "{name}: {what}: got {count}, needs {least} to {MOST}");
        }
        ensure!(
            told.sizes == 0 || !told.largest.is_null(),
            "{name}: largest: got NULL"
        );
        ensure!(!told.input_names.is_null(), "{name}: input_names: got NULL");
        // SAFETY: the header gives the arrays these lengths.
        let (largest, names) = unsafe {
            let largest = match told.sizes {
                0 => &[],
                n => std::slice::from_raw_parts(told.largest, n),
            };
            (
                largest,
                std::slice::from_raw_parts(told.input_names, told.inputs),
            )
        };
        ensure!(
            !largest.contains(&0),
            "{name}: largest: got 0, needs 1 at least"
        );
        let input_names = (names.iter())
            .map(|&given| text(&format!("{name}: input_names"), given))
            .collect::<Result<_>>()?;
        let (Some(lengths), Some(forward), Some(backward)) =
            (told.lengths, told.forward, told.backward)
        else {
            bail!("{name}: got NULL for lengths, forward or backward, needs all three");
        };
        let reference = match (told.reference_forward, told.reference_backward) {
            (Some(forward), Some(backward)) => Some((forward, backward)),
            (None, None) => None,
            _ => bail!(
                "{name}: got half a reference, needs its forward and its backward, or neither"
            ),
        };
        Ok(Kernel {
            name,
            largest: largest.to_vec(),
            input_names,
            outputs: told.outputs,
            lengths,
            forward,
            backward,
            reference,
        })
    }

    /// All links at sizes.
    #[allow(unsafe_code, reason = "functions of a library")]
    fn check(&self, sizes: &[usize]) -> Result<Report> {
        let (mut inputs, mut outputs) = ([0; MOST], [0; MOST]);
        // SAFETY: the arrays have room for the most that there can be.
        unsafe { (self.lengths)(sizes.as_ptr(), inputs.as_mut_ptr(), outputs.as_mut_ptr()) };
        let key = Key::new(0).purpose("inputs of a library");
        let drawn = self.input_names.iter().enumerate().map(|(i, name)| {
            let mut stream = key.index(i as u64).stream();
            let values = (0..inputs[i]).map(|_| stream.normal() as f32).collect();
            Input {
                name: name.clone(),
                values,
            }
        });
        // SAFETY, of all four: buffers of the lengths that the library asked for.
        let forward = |x: &[Vec<f32>], y: &mut [Vec<f32>]| unsafe {
            (self.forward)(sizes.as_ptr(), read(x).as_ptr(), written(y).as_ptr());
        };
        let backward = |x: &[Vec<f32>], d: &[Vec<f32>], g: &mut [Vec<f32>]| unsafe {
            let (x, d, g) = (read(x), read(d), written(g));
            (self.backward)(sizes.as_ptr(), x.as_ptr(), d.as_ptr(), g.as_ptr());
        };
        let plain = |round: Round<'_>, x: &[Vec<f64>], y: &mut [Vec<f64>]| unsafe {
            let Some((forward, _)) = self.reference else {
                return;
            };
            let state = (&raw const round).cast_mut().cast();
            forward(
                sizes.as_ptr(),
                round_in_c,
                state,
                read(x).as_ptr(),
                written(y).as_ptr(),
            );
        };
        let plain_back = |round: Round<'_>, x: &[Vec<f64>], d: &[Vec<f64>], g: &mut [Vec<f64>]| unsafe {
            let Some((_, backward)) = self.reference else {
                return;
            };
            let state = (&raw const round).cast_mut().cast();
            let (x, d, g) = (read(x), read(d), written(g));
            backward(
                sizes.as_ptr(),
                round_in_c,
                state,
                x.as_ptr(),
                d.as_ptr(),
                g.as_ptr(),
            );
        };
        let subject = Function {
            name: format!("{} {sizes:?}", self.name),
            inputs: drawn.collect(),
            outputs: outputs[..self.outputs].to_vec(),
            forward: &forward,
            backward: &backward,
            reference: self.reference.map(|_| Reference {
                forward: &plain,
                backward: &plain_back,
            }),
        };
        Ok(verify::function(&subject, 0)?)
    }
}

/// The rounding that C calls: the state is a pointer to the closure.
#[allow(unsafe_code, reason = "called by a library")]
extern "C" fn round_in_c(state: *mut c_void, value: f64) -> f64 {
    // SAFETY: it is what the reference was called with, and that lives until it returns.
    let round = unsafe { &*state.cast::<Round<'_>>() };
    round(value)
}

fn read<T>(buffers: &[Vec<T>]) -> Vec<*const T> {
    buffers.iter().map(Vec::as_ptr).collect()
}

fn written<T>(buffers: &mut [Vec<T>]) -> Vec<*mut T> {
    buffers.iter_mut().map(Vec::as_mut_ptr).collect()
}

/// Sizes where kernels differ from their small cases: 1, 2, 3 and the neighbours of powers of two, by turns for
/// every size; in the middle first, the largest last.
fn draws(largest: &[usize]) -> Vec<Vec<usize>> {
    const MIDDLE: [usize; 6] = [5, 7, 3, 9, 11, 13];
    const ORDER: [usize; 16] = [
        1, 9, 2, 17, 3, 31, 8, 65, 13, 33, 16, 127, 37, 257, 64, 1023,
    ];
    let at = |draw: usize| -> Vec<usize> {
        let each = largest.iter().enumerate().map(|(place, &most)| match draw {
            0 => MIDDLE[place % MIDDLE.len()].min(most),
            draw if draw + 1 == DRAWS => most,
            // Not every size 1 at once: the one's neighbours of powers are the other's small ones.
            draw => ORDER[(draw - 1 + place) % ORDER.len()].min(most),
        });
        each.collect()
    };
    let mut drawn: Vec<Vec<usize>> = (0..DRAWS).map(at).collect();
    drawn.dedup();
    drawn
}
