//! The rate of every step, and the samples that it sees.

use super::{FEW, holds, row};
use crate::data::{Batches, Dataset};
use crate::optim::{Schedule, ScheduleKind};
use crate::verify::report::{Link, Row};
use crate::{Result, Target, math};

/// The rate from step to step, as PyTorch's schedulers go on from the last one.
pub fn schedules() -> Result<Vec<Row>> {
    let total = 40;
    let factors = |schedule: &Schedule| -> Vec<f64> {
        (0..total)
            .map(|step| schedule.factor(step, total))
            .collect()
    };
    let mut rows = Vec::new();
    let mut is = |name: &str,
                  kind: ScheduleKind,
                  warmup: u64,
                  next: &dyn Fn(u64, f64) -> f64,
                  first: f64| {
        let schedule = Schedule { kind, warmup };
        let mut rates = vec![first];
        for step in 1..total {
            rates.push(next(step, rates[rates.len() - 1]));
        }
        for (step, rate) in (0..).zip(&mut rates) {
            if step < warmup {
                *rate = *rate / warmup as f64 * (step + 1) as f64;
            }
        }
        let got = factors(&schedule);
        rows.push(row(
            "schedules",
            name,
            Link::Training,
            &got,
            &rates,
            64.0 * FEW,
        ));
    };
    is("constant", ScheduleKind::Constant, 0, &|_, last| last, 1.0);
    is(
        "constant, warm-up",
        ScheduleKind::Constant,
        7,
        &|_, last| last,
        1.0,
    );
    let step = ScheduleKind::Step {
        every: 6,
        gamma: 0.3,
    };
    let drop = |step: u64, last: f64| {
        if step.is_multiple_of(6) {
            0.3 * last
        } else {
            last
        }
    };
    is("step", step, 0, &drop, 1.0);
    is("step, warm-up", step, 9, &drop, 1.0);
    // CosineAnnealingLR's recursion.
    let cosine = |step: u64, last: f64| {
        let at = |s: u64| 1.0 + math::cos(std::f64::consts::PI * s as f64 / total as f64);
        0.05 + at(step) / at(step - 1) * (last - 0.05)
    };
    is(
        "cosine",
        ScheduleKind::Cosine { min: 0.05 },
        0,
        &cosine,
        1.0,
    );
    // OneCycleLR by sin² of a quarter turn, from 1/10 up to 1 at step 0.25·40 − 1 and down to 1/1000.
    let cycle = ScheduleKind::OneCycle {
        rise: 0.25,
        div_factor: 10.0,
        final_div_factor: 100.0,
    };
    let quarter = |share: f64| math::powi(math::sin(0.5 * std::f64::consts::PI * share), 2);
    let one = |step: u64, _: f64| match step {
        0..=9 => 0.1 + 0.9 * quarter(step as f64 / 9.0),
        _ => 1.0 - (1.0 - 0.001) * quarter((step - 9) as f64 / 30.0),
    };
    is("one cycle", cycle, 0, &one, 0.1);
    Ok(rows)
}

/// Every sample once an epoch, every sample as often at every place, the numbers of the samples asked
/// for, and a step's batch whatever was asked for before.
pub fn batches() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (samples, size) in [(1, 1), (7, 3), (12, 4), (10, 16), (257, 16)] {
        let mut all = Batches::new(samples, size, 3)?;
        let per_epoch = all.per_epoch();
        let mut wrong = usize::from(per_epoch != (samples as f64 / size as f64).ceil() as u64);
        let mut drawn: Vec<Vec<u32>> = Vec::new();
        for epoch in 0..5 {
            let mut seen = Vec::new();
            for step in 0..per_epoch {
                let batch = all.of_step(epoch * per_epoch + step).to_vec();
                let last = step + 1 == per_epoch;
                let len = if last {
                    samples - (per_epoch as usize - 1) * size
                } else {
                    size
                };
                wrong += usize::from(batch.len() != len);
                seen.extend_from_slice(&batch);
                drawn.push(batch);
            }
            seen.sort_unstable();
            wrong += usize::from(!seen.iter().copied().eq(0..samples as u32));
        }
        // Backwards: a resumed run asks for any step first.
        let mut again = Batches::new(samples, size, 3)?;
        for (step, batch) in drawn.iter().enumerate().rev() {
            wrong += usize::from(again.of_step(step as u64) != &batch[..]);
        }
        let label = format!("{samples} samples by {size}");
        rows.push(holds("batches", label, Link::Training, 5 * samples, wrong));
    }
    // How often each of 6 samples stands at each of 6 places in 6,000 epochs: 1,000 ± 6 σ.
    let mut all = Batches::new(6, 6, 1)?;
    let mut counts = vec![0.0; 36];
    for epoch in 0..6000 {
        for (place, &sample) in all.of_step(epoch).iter().enumerate() {
            counts[place * 6 + sample as usize] += 1.0;
        }
    }
    let sigma = (6000.0_f64 * (1.0 / 6.0) * (5.0 / 6.0)).sqrt();
    rows.push(row(
        "batches",
        "places",
        Link::Training,
        &counts,
        &[1000.0; 36],
        6.0 * sigma,
    ));
    // What is gathered is what was asked for.
    let inputs: Vec<f32> = (0..30).map(|i| i as f32).collect();
    let weights: Vec<f32> = (0..10).map(|i| 1.0 + i as f32).collect();
    let data = Dataset::new(vec![3], inputs)?
        .with_values(vec![1], (0..10).map(|i| 100.0 + i as f32).collect())?
        .with_weights(weights)?;
    let asked = [7, 0, 3, 3, 9];
    let (mut x, mut target) = (Vec::new(), Target::default());
    data.gather(&asked, &mut x, &mut target);
    let is_x: Vec<f64> = asked
        .iter()
        .flat_map(|&s| (0..3).map(move |k| f64::from(3 * s + k)))
        .collect();
    let f64s = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let of = |first: f64| {
        asked
            .iter()
            .map(|&s| first + f64::from(s))
            .collect::<Vec<_>>()
    };
    rows.push(row(
        "batches",
        "samples",
        Link::Training,
        &f64s(&x),
        &is_x,
        0.0,
    ));
    rows.push(row(
        "batches",
        "targets",
        Link::Training,
        &f64s(&target.values),
        &of(100.0),
        0.0,
    ));
    let got = target.weights.as_deref().map_or_else(Vec::new, f64s);
    rows.push(row(
        "batches",
        "weights",
        Link::Training,
        &got,
        &of(1.0),
        0.0,
    ));
    Ok(rows)
}
