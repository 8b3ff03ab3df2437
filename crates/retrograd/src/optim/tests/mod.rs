use super::*;

fn flat_layout(n: usize) -> Layout {
    let mut layout = Layout::new();
    layout.push("w", &[n]);
    layout
}

#[test]
fn a_step_is_refused_nowhere_but_on_frozen_tensors() {
    let mut layout = Layout::new();
    layout.push("a", &[3]);
    layout.push("b", &[2]);
    layout.freeze("a").unwrap();
    for spec in [
        OptimizerSpec::sgd(0.1),
        OptimizerSpec::adam(0.1),
        OptimizerSpec::adamw(0.1),
    ] {
        let mut params = vec![1.0_f64; 5];
        let mut optimizer = Optimizer::new(spec, 5);
        optimizer.step(&mut params, &[1.0; 5], &layout, 0.1);
        assert_eq!(&params[..3], &[1.0; 3]);
        assert!(
            params[3..].iter().all(|&p| p < 0.95),
            "{spec:?}: {params:?}"
        );
    }
}

#[test]
fn the_first_adam_step_moves_by_the_rate_against_the_sign() {
    // m/(1−β₁) = g and √v/√(1−β₂) = |g|, so the step is η·g/(|g| + ε).
    let mut params = vec![0.5_f64, 0.5];
    let mut optimizer = Optimizer::new(OptimizerSpec::adam(0.01), 2);
    optimizer.step(&mut params, &[3.0, -0.2], &flat_layout(2), 0.01);
    for (p, g) in params.iter().zip([3.0_f64, -0.2]) {
        let exact = 0.5 - 0.01 * g / (g.abs() + 1e-8);
        assert!((p - exact).abs() < 1e-15, "{p} {exact}");
    }
}

#[test]
fn large_vectors_step_to_the_same_bits_on_1_2_and_7_threads() {
    let n = 100_003;
    let grads: Vec<f32> = (0..n)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0)
        .collect();
    let run = |threads| {
        parallel::with_threads(threads, || {
            let mut params = vec![0.3_f32; n];
            let mut optimizer = Optimizer::new(OptimizerSpec::adamw(0.01), n);
            for _ in 0..3 {
                optimizer.step(&mut params, &grads, &flat_layout(n), 0.01);
            }
            params
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(7));
}

#[test]
fn clipping_scales_to_the_norm_and_clamps_elements() {
    let layout = flat_layout(2);
    let mut grads = vec![3.0_f64, 4.0];
    assert_eq!(clip_global_norm(&mut grads, &layout, 10.0), 5.0);
    assert_eq!(grads, [3.0, 4.0]);
    clip_global_norm(&mut grads, &layout, 1.0);
    let factor = 1.0 / (5.0 + 1e-6);
    assert_eq!(grads, [3.0 * factor, 4.0 * factor]);
    let mut grads = vec![250.0_f64, -250.0, 1.0, f64::NAN];
    clip_elements(&mut grads, 100.0);
    assert_eq!(&grads[..3], &[100.0, -100.0, 1.0]);
    assert!(grads[3].is_nan());
}

#[test]
fn schedules_have_their_stated_ends() {
    let of = |kind| Schedule { kind, warmup: 0 };
    assert_eq!(of(ScheduleKind::Constant).factor(17, 100), 1.0);
    let step = of(ScheduleKind::Step {
        every: 10,
        gamma: 0.5,
    });
    assert_eq!(
        (
            step.factor(9, 100),
            step.factor(10, 100),
            step.factor(29, 100)
        ),
        (1.0, 0.5, 0.25)
    );
    let cosine = of(ScheduleKind::Cosine { min: 0.1 });
    assert_eq!(cosine.factor(0, 100), 1.0);
    assert!((cosine.factor(50, 100) - 0.55).abs() < 1e-12);
    assert!((cosine.factor(100, 100) - 0.1).abs() < 1e-12);
    let one = of(ScheduleKind::OneCycle {
        rise: 0.3,
        div_factor: 25.0,
        final_div_factor: 1e4,
    });
    assert!((one.factor(0, 100) - 0.04).abs() < 1e-12);
    assert!((one.factor(29, 100) - 1.0).abs() < 1e-12);
    assert!((one.factor(99, 100) - 4e-6).abs() < 1e-12);
    let warm = Schedule {
        kind: ScheduleKind::Constant,
        warmup: 4,
    };
    assert_eq!(
        [0, 1, 3, 4].map(|s| warm.factor(s, 100)),
        [0.25, 0.5, 1.0, 1.0]
    );
}

#[test]
fn constants_out_of_range_are_named() {
    let message = |spec: OptimizerSpec| spec.check().unwrap_err().to_string();
    assert!(message(OptimizerSpec::sgd(f64::NAN)).contains("optimizer.lr"));
    let spec = OptimizerSpec::Sgd {
        lr: 0.1,
        momentum: 0.0,
        nesterov: true,
        weight_decay: 0.0,
    };
    assert!(message(spec).contains("nesterov"));
    let spec = OptimizerSpec::Adam {
        lr: 0.1,
        betas: [0.9, 1.0],
        eps: 1e-8,
        weight_decay: 0.0,
    };
    assert!(message(spec).contains("betas"));
}

#[test]
fn ranges_of_any_length_make_the_step_of_the_whole_vector() {
    let mut layout = Layout::new();
    // Long enough for threads, and for chunks that end within a vector.
    for (name, len) in [("a", 20_011), ("b", 7), ("c", 513), ("d", 17_000)] {
        layout.push(name, &[len]);
    }
    layout.freeze("c").unwrap();
    let n = layout.len();
    let sgd = |momentum, nesterov| OptimizerSpec::Sgd {
        lr: 0.1,
        momentum,
        nesterov,
        weight_decay: 0.01,
    };
    let number = |i: usize, step: usize| ((i * 37 + step * 101) % 1009) as f32 / 503.0 - 1.0;
    for spec in [
        sgd(0.0, false),
        sgd(0.9, false),
        sgd(0.9, true),
        OptimizerSpec::adam(0.1),
        OptimizerSpec::adamw(0.1),
    ] {
        for threads in [1, 2, 7] {
            parallel::with_threads(threads, || {
                let start: Vec<f32> = (0..n).map(|i| number(i, 9)).collect();
                let [mut whole, mut parts] = [start.clone(), start.clone()];
                let mut by_whole = Optimizer::new(spec, n);
                let mut by_parts = Optimizer::new(spec, n);
                for step in 0..3 {
                    let grads: Vec<f32> = (0..n).map(|i| number(i, step)).collect();
                    by_whole.step(&mut whole, &grads, &layout, 0.1);
                    by_parts.begin();
                    // Within tensors and across them, from the end.
                    let cuts = [0, 1, 20_000 - step, 20_015, 20_100, 20_600, 37_001, n];
                    for cut in cuts.windows(2).rev() {
                        by_parts.step_range(&mut parts, &grads, &layout, cut[0]..cut[1], 0.1);
                    }
                }
                assert!(whole == parts, "{spec:?} on {threads} threads");
                assert_eq!(by_whole.state(), by_parts.state());
                assert_eq!(by_whole.steps(), by_parts.steps());
                let frozen = layout.get("c").unwrap().range();
                assert_eq!(parts[frozen.clone()], start[frozen]);
            });
        }
    }
}
