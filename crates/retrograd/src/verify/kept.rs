//! What the reference said of models, kept in memory and, where a folder is given, in files: a campaign that is
//! continued, or whose process was ended, begins with it.
//!
//! A file is named by a hash of what the reference was asked: the model's name, its parameters, batch and target, the
//! optimizers and the bits of the device. It holds lengths and numbers, 8 bytes each, little end first. What can't be
//! read is computed anew.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::{Expectation, Options};
use super::precision::Samples;
use super::subject::{Evaluation, Subject, Trajectory};
use super::trajectories::Reach;
use crate::{Batch, Model, disk};

/// What the reference said of models, by their names.
#[derive(Clone, Default)]
pub struct Kept {
    known: Arc<Mutex<HashMap<String, Arc<Expectation>>>>,
    folder: Option<PathBuf>,
}

impl Kept {
    /// In files of a folder, too.
    pub fn in_folder(folder: PathBuf) -> Self {
        Kept {
            folder: Some(folder),
            ..Kept::default()
        }
    }

    pub(super) fn or_computed<M: Model>(
        &self,
        subject: &Subject<'_, M>,
        options: &Options,
        compute: impl FnOnce() -> Expectation,
    ) -> Arc<Expectation> {
        let name = format!("{:?} {}", options.on, subject.name);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(expected) = known().get(&name) {
            return Arc::clone(expected);
        }
        let file = (self.folder.as_ref()).map(|f| f.join(asked(&name, subject, options)));
        let read = file.as_ref().and_then(|file| disk::read(file).ok());
        let read = read.and_then(|bytes| Expectation::from_words(&mut &bytes[..]));
        let is_new = read.is_none();
        let expected = Arc::new(read.unwrap_or_else(compute));
        if let Some(file) = file.filter(|_| is_new) {
            let mut bytes = Vec::new();
            expected.to_words(&mut bytes);
            // A file that is missing costs time and nothing else.
            let _ = disk::write_whole(&file, |out| out.write_all(&bytes));
        }
        known().insert(name, Arc::clone(&expected));
        expected
    }
}

/// A file's name for what is asked. Fowler, Noll and Vo's hash.
fn asked<M: Model>(name: &str, subject: &Subject<'_, M>, options: &Options) -> String {
    let mut bytes = Vec::new();
    for values in [
        &subject.params[..],
        subject.input.values(),
        &subject.target.values,
        subject.target.weights.as_deref().unwrap_or(&[]),
    ] {
        values.to_vec().to_words(&mut bytes);
    }
    let words = format!(
        "{name} {:?} {:?} {:?} {} {:?} {:?} {}",
        subject.target.classes,
        subject.loss,
        subject.pass,
        options.steps,
        options.plan,
        options.optimizers,
        env!("CARGO_PKG_VERSION"),
    );
    bytes.extend(words.bytes());
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}.expected")
}

/// What is written as words of 8 bytes.
trait Words: Sized {
    fn to_words(&self, bytes: &mut Vec<u8>);
    fn from_words(bytes: &mut &[u8]) -> Option<Self>;
}

impl Words for u64 {
    fn to_words(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }

    fn from_words(bytes: &mut &[u8]) -> Option<Self> {
        let (word, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u64::from_le_bytes(*word))
    }
}

impl Words for f64 {
    fn to_words(&self, bytes: &mut Vec<u8>) {
        self.to_bits().to_words(bytes);
    }

    fn from_words(bytes: &mut &[u8]) -> Option<Self> {
        u64::from_words(bytes).map(f64::from_bits)
    }
}

impl Words for bool {
    fn to_words(&self, bytes: &mut Vec<u8>) {
        u64::from(*self).to_words(bytes);
    }

    fn from_words(bytes: &mut &[u8]) -> Option<Self> {
        u64::from_words(bytes).map(|word| word != 0)
    }
}

impl<T: Words> Words for Vec<T> {
    fn to_words(&self, bytes: &mut Vec<u8>) {
        (self.len() as u64).to_words(bytes);
        self.iter().for_each(|item| item.to_words(bytes));
    }

    fn from_words(bytes: &mut &[u8]) -> Option<Self> {
        let len = u64::from_words(bytes)?;
        (0..len).map(|_| T::from_words(bytes)).collect()
    }
}

/// Fields one after the other.
macro_rules! words {
    ($type:ty { $($field:ident),* }) => {
        impl Words for $type {
            fn to_words(&self, bytes: &mut Vec<u8>) {
                $(self.$field.to_words(bytes);)*
            }

            fn from_words(bytes: &mut &[u8]) -> Option<Self> {
                // In the order in which they are written here.
                Some(Self { $($field: Words::from_words(bytes)?),* })
            }
        }
    };
}
words!(Evaluation<f64> { output, loss, d_params, d_input });
words!(Trajectory<f64> { losses, params, grads });
words!(Samples {
    roundings,
    evaluations,
    trajectories
});
words!(Reach { defined, moved });
words!(Expectation {
    exact,
    trajectories,
    samples,
    reach,
    noise,
    share,
    underflow
});

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::verify::builtin::network::case;
    use crate::verify::builtin::subject;
    use crate::verify::precision::SamplePlan;
    use crate::verify::{Granted, Options};
    use crate::{Loss, math};

    /// What comes out of a file has the bits of what was computed; another batch is another file.
    #[test]
    fn what_was_said_comes_back_from_a_file_and_of_another_batch_it_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (mut case, loss) =
            case(("kept", &[3], r#"[{"kind":"dense","out":2}]"#, 4, Loss::Mse)).unwrap();
        let options = Options::default();
        let optimizers: Vec<_> = options.optimizers.iter().map(|(_, o)| o).collect();
        let mut computed = 0;
        let mut bits = |case: &crate::verify::Case<_>| {
            // As if by another process.
            let kept = Kept::in_folder(folder.path().into());
            let subject = subject("kept", case, loss);
            let expected = kept.or_computed(&subject, &options, || {
                computed += 1;
                let plan = SamplePlan::default();
                Expectation::new(&subject, &Granted::CPU, &optimizers, 2, &plan)
            });
            let mut bytes = Vec::new();
            expected.to_words(&mut bytes);
            (bytes, computed)
        };
        let (first, _) = bits(&case);
        assert_eq!(bits(&case), (first.clone(), 1));
        case.input[0] = math::powi(0.5, 3);
        let (other, computed) = bits(&case);
        assert_eq!(computed, 2);
        assert_ne!(first, other);
        // Half a file is none.
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap().path();
            let bytes = fs::read(&file).unwrap();
            fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        }
        assert_eq!(bits(&case), (other, 3));
    }
}
