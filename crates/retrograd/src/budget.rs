//! One budget of memory: what a run needs is computed before anything is allocated, compared with
//! what there is, and refused with the largest value that would fit.
//!
//! A [`Demand`] is bytes as a function of the sizes that a user chose; [`allow`] compares. The
//! loop asks every task for the demand of its training ([`Task::demand`](crate::train::Task::demand));
//! what is allocated while a task is built (generated data and images) asks for itself.
//!
//! What there is: the smallest of the memory that the system can still give (`MemAvailable`), what
//! the control groups of the process leave (versions 1 and 2), what `ulimit -v` leaves, and the
//! limit of [`limit_to`] (`--memory-mib`). Where a system says none of it, the allocator is asked for
//! a block of the whole size, which is given back at once.

mod machine;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// The limit in bytes; the largest number is none.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Sets the most bytes that a run of this process may take, or no such limit. Memory belongs to the
/// process, so the limit does.
pub fn limit_to(bytes: Option<u64>) {
    LIMIT.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Bytes as a function of sizes.
type Bytes<'a> = Box<dyn Fn(&[u64]) -> u128 + 'a>;

/// A part of the run's memory: bytes as a function of the sizes that a user chose.
pub struct Demand<'a> {
    sizes: Vec<Size>,
    bytes: Bytes<'a>,
}

/// A size that could be smaller.
struct Size {
    name: String,
    value: u64,
}

impl<'a> Demand<'a> {
    /// So many bytes, whatever is chosen.
    pub fn fixed(bytes: u128) -> Self {
        Demand {
            sizes: Vec::new(),
            bytes: Box::new(move |_| bytes),
        }
    }

    /// The bytes for sizes, each a name and its value, in the order in which a smaller value is to be
    /// proposed. The bytes must not fall where a size grows.
    pub fn of<const N: usize>(
        sizes: [(&str, u64); N],
        bytes: impl Fn([u64; N]) -> u128 + 'a,
    ) -> Self {
        let named = sizes.map(|(name, value)| Size {
            name: name.to_string(),
            value,
        });
        Demand {
            sizes: named.into(),
            bytes: Box::new(move |values| bytes(std::array::from_fn(|i| values[i]))),
        }
    }

    /// The same for a list of sizes.
    pub fn of_list(sizes: Vec<(String, u64)>, bytes: impl Fn(&[u64]) -> u128 + 'a) -> Self {
        let sizes = sizes.into_iter().map(|(name, value)| Size { name, value });
        Demand {
            sizes: sizes.collect(),
            bytes: Box::new(bytes),
        }
    }

    /// With that many bytes more, whatever is chosen.
    pub fn and(self, more: u128) -> Self {
        let bytes = self.bytes;
        Demand {
            sizes: self.sizes,
            bytes: Box::new(move |values| bytes(values).saturating_add(more)),
        }
    }

    /// The bytes for the sizes as they were chosen.
    pub fn bytes(&self) -> u128 {
        (self.bytes)(&self.values())
    }

    fn values(&self) -> Vec<u64> {
        self.sizes.iter().map(|s| s.value).collect()
    }

    /// The largest value of one size with which the whole fits, the others as they are.
    fn largest(&self, size: usize, free: u64) -> Option<u64> {
        let mut values = self.values();
        let mut fits = |value| {
            values[size] = value;
            (self.bytes)(&values) <= u128::from(free)
        };
        if self.sizes[size].value == 0 || !fits(1) {
            return None;
        }
        let (mut low, mut high) = (1, self.sizes[size].value);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Whether it fits into that many bytes, called by what they are.
    fn within(&self, free: u64, called: &str) -> Result<()> {
        let needed = self.bytes();
        if needed <= u128::from(free) {
            return Ok(());
        }
        let problem = format!(
            "needs {} of memory, {} are {called}",
            in_units(needed),
            in_units(free.into())
        );
        let mut sizes = (0..self.sizes.len()).map(|i| (i, self.largest(i, free)));
        match sizes.find_map(|(i, largest)| Some((i, largest?))) {
            Some((i, largest)) => {
                let Size { name, value } = &self.sizes[i];
                let problem = format!("{problem}: at most {largest} fit");
                Err(Error::refused(format!("{name} = {value}"), problem))
            }
            None => {
                let named = self
                    .sizes
                    .iter()
                    .map(|s| format!("{} = {}", s.name, s.value));
                let named: Vec<String> = named.collect();
                let what = match named.is_empty() {
                    true => "the run".to_string(),
                    false => named.join(", "),
                };
                Err(Error::refused(what, problem))
            }
        }
    }
}

/// Refuses what doesn't fit into the memory that there is, with the largest value that would.
pub fn allow(demand: &Demand<'_>) -> Result<()> {
    let limit = LIMIT.load(Ordering::Relaxed);
    if limit < u64::MAX {
        demand.within(limit, "allowed")?;
    }
    // Asking the system takes longer than to use so little, and a folder may hold thousands of small files.
    // Where even a MiB is missing the allocation itself fails.
    const SMALL: u128 = 1 << 20;
    if demand.bytes() <= SMALL {
        return Ok(());
    }
    match machine::free() {
        Some(free) => demand.within(free, "free"),
        None => {
            let given = |bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
            match usize::try_from(demand.bytes()).is_ok_and(given) {
                true => Ok(()),
                false => demand.within(0, "what the system gives at once"),
            }
        }
    }
}

/// Refuses a file of that many bytes that would be held in memory whole.
pub(crate) fn allow_file(path: &std::path::Path, bytes: u64) -> Result<()> {
    let demand = Demand::fixed(bytes.into());
    allow(&demand).map_err(|error| match error {
        Error::Refused { problem, .. } => Error::refused(path.display(), problem),
        other => other,
    })
}

/// The bytes that can still be allocated, by the machine and the limit.
pub fn free() -> u64 {
    let limit = LIMIT.load(Ordering::Relaxed);
    machine::free().map_or(limit, |free| free.min(limit))
}

/// What a limit of the address space (`ulimit -v`) leaves; `None` where there is none.
pub(crate) fn address_space() -> Option<u64> {
    machine::address_space(&|path| std::fs::read_to_string(path).ok())
}

/// Main memory that programs can still have; `None` where the system doesn't say.
#[cfg(feature = "gpu")]
pub(crate) fn free_main_memory() -> Option<u64> {
    machine::free()
}

/// A product of sizes, whatever they are.
pub(crate) fn product(sizes: impl IntoIterator<Item = u64>) -> u128 {
    let sizes = sizes.into_iter().map(u128::from);
    sizes.fold(1, u128::saturating_mul)
}

/// Bytes for people, three digits at most.
fn in_units(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value < 9.95) {
        (0, _) => format!("{bytes} bytes"),
        (_, true) => format!("{value:.1} {}", UNITS[unit]),
        (_, false) => format!("{value:.0} {}", UNITS[unit]),
    }
}
