use std::path::Path;

use super::*;

/// 100 bytes a sample and 7 whatever is chosen.
fn demand(batch: u64) -> Demand<'static> {
    Demand::of([("train.batch", batch)], |[batch]| {
        100 * u128::from(batch) + 7
    })
}

#[test]
fn what_does_not_fit_is_refused_with_the_largest_value_that_does() {
    assert!(demand(10).within(1007, "free").is_ok());
    let error = demand(11).within(1007, "free").unwrap_err().to_string();
    assert!(error.contains("train.batch = 11"), "{error}");
    assert!(error.contains("at most 10 fit"), "{error}");
    // By trial: whatever there is, the value named fits and the next one doesn't.
    for free in 107..2000 {
        let error = demand(1 << 40)
            .within(free, "free")
            .unwrap_err()
            .to_string();
        let named = error
            .split("at most ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let named: u64 = named.parse().unwrap();
        assert!(demand(named).within(free, "free").is_ok());
        assert!(demand(named + 1).within(free, "free").is_err());
    }
}

#[test]
fn a_size_that_cannot_help_is_passed_over_and_all_are_named_where_none_can() {
    let grid = Demand::of([("batch", 2), ("rows", 1000)], |[batch, rows]| {
        product([batch, rows, rows])
    });
    let error = grid.within(50_000, "free").unwrap_err().to_string();
    assert!(
        error.contains("rows = 1000") && error.contains("at most 158 fit"),
        "{error}"
    );
    let error = grid.within(1, "free").unwrap_err().to_string();
    assert!(
        error.contains("batch = 2, rows = 1000") && !error.contains("at most"),
        "{error}"
    );
    let error = Demand::fixed(3 << 30)
        .within(2 << 30, "allowed")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the run: needs 3.0 GiB of memory, 2.0 GiB are allowed"
    );
    // Products beyond every machine are large, not small.
    assert_eq!(product([u64::MAX; 4]), u128::MAX);
}

#[test]
fn the_machine_says_what_is_free_and_more_is_refused() {
    let free = machine::free();
    if cfg!(target_os = "linux") {
        assert!(free.is_some_and(|free| free > 1 << 20), "{free:?}");
    }
    allow(&demand(1)).unwrap();
    let error = allow(&demand(u64::MAX)).unwrap_err().to_string();
    assert!(
        error.contains("EiB of memory") && error.contains("at most"),
        "{error}"
    );
}

/// A machine of those files.
fn told(files: &'static [(&'static str, &'static str)]) -> impl Fn(&Path) -> Option<String> {
    move |path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.to_string())
    }
}

#[test]
fn limits_of_containers_and_shells_are_read() {
    let memory = told(&[("/proc/meminfo", "MemTotal: 10 kB\nMemAvailable:     3 kB\n")]);
    assert_eq!(machine::available(&memory), Some(3072));
    // Version 2: the tightest group on the way up decides; files in memory make way.
    let second = told(&[
        ("/proc/self/cgroup", "0::/a/b\n"),
        ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/a/b/memory.current", "5\n"),
        ("/sys/fs/cgroup/a/memory.max", "1000\n"),
        ("/sys/fs/cgroup/a/memory.current", "700\n"),
        (
            "/sys/fs/cgroup/a/memory.stat",
            "anon 1\ninactive_file 200\n",
        ),
    ]);
    assert_eq!(machine::groups(&second), Some(500));
    // Version 1, in a container that sees the host's path.
    let first = told(&[
        (
            "/proc/self/cgroup",
            "3:cpu:/x\n2:hugetlb,memory:/docker/abc\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1500\n"),
    ]);
    assert_eq!(machine::groups(&first), Some(2500));
    let shell = told(&[
        (
            "/proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax address space         9000 unlimited bytes\n",
        ),
        ("/proc/self/status", "Name: x\nVmSize:\t       2 kB\n"),
    ]);
    assert_eq!(machine::address_space(&shell), Some(9000 - 2048));
    assert_eq!(machine::address_space(&told(&[])), None);
}

#[test]
fn bytes_are_said_in_three_digits() {
    for (bytes, said) in [
        (7, "7 bytes"),
        (1 << 20, "1.0 MiB"),
        (10_700_000_000, "10 GiB"),
        (31 << 30, "31 GiB"),
        (u128::from(u64::MAX), "16 EiB"),
    ] {
        assert_eq!(in_units(bytes), said);
    }
}
