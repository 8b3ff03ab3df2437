//! A library of functions, and the best c·f(a·x + b) + d through some points.
//!
//! For given a and b, c and d are a linear regression. a and b are searched on a grid in units of
//! the points' spread, and the best few are refined in all four by Levenberg and Marquardt's method.

use crate::math;
use std::fmt;

use crate::linalg::{cholesky, cholesky_solve};

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// x
    Identity,
    /// x²
    Square,
    /// x³
    Cube,
    /// x⁴
    Fourth,
    /// 1/x
    Inverse,
    /// 1/x²
    InverseSquare,
    /// √x
    Sqrt,
    /// 1/√x
    InverseSqrt,
    /// eˣ
    Exp,
    /// ln x
    Log,
    /// sin x
    Sin,
    /// cos x
    Cos,
    /// tan x
    Tan,
    /// tanh x
    Tanh,
    /// 1/(1 + e⁻ˣ)
    Sigmoid,
    /// |x|
    Abs,
    /// e^(−x²)
    Gaussian,
    /// arctan x
    Arctan,
}

/// All functions.
pub const LIBRARY: &[Function] = &[
    Function::Identity,
    Function::Square,
    Function::Cube,
    Function::Fourth,
    Function::Inverse,
    Function::InverseSquare,
    Function::Sqrt,
    Function::InverseSqrt,
    Function::Exp,
    Function::Log,
    Function::Sin,
    Function::Cos,
    Function::Tan,
    Function::Tanh,
    Function::Sigmoid,
    Function::Abs,
    Function::Gaussian,
    Function::Arctan,
];

impl Function {
    /// Its value; NaN outside its domain.
    pub fn value(self, x: f64) -> f64 {
        match self {
            Function::Identity => x,
            Function::Square => x * x,
            Function::Cube => x * x * x,
            Function::Fourth => x * x * x * x,
            Function::Inverse => 1.0 / x,
            Function::InverseSquare => 1.0 / (x * x),
            Function::Sqrt => x.sqrt(),
            Function::InverseSqrt => 1.0 / x.sqrt(),
            Function::Exp => math::exp(x),
            Function::Log => math::ln(x),
            Function::Sin => math::sin(x),
            Function::Cos => math::cos(x),
            Function::Tan => math::tan(x),
            Function::Tanh => math::tanh(x),
            Function::Sigmoid => 1.0 / (1.0 + math::exp(-x)),
            Function::Abs => x.abs(),
            Function::Gaussian => math::exp(-x * x),
            Function::Arctan => math::atan(x),
        }
    }

    /// Its derivative.
    pub fn slope(self, x: f64) -> f64 {
        match self {
            Function::Identity => 1.0,
            Function::Square => 2.0 * x,
            Function::Cube => 3.0 * x * x,
            Function::Fourth => 4.0 * x * x * x,
            Function::Inverse => -1.0 / (x * x),
            Function::InverseSquare => -2.0 / (x * x * x),
            Function::Sqrt => 0.5 / x.sqrt(),
            Function::InverseSqrt => -0.5 / (x * x.sqrt()),
            Function::Exp => math::exp(x),
            Function::Log => 1.0 / x,
            Function::Sin => math::cos(x),
            Function::Cos => -math::sin(x),
            Function::Tan => 1.0 + math::tan(x) * math::tan(x),
            Function::Tanh => 1.0 - math::tanh(x) * math::tanh(x),
            Function::Sigmoid => {
                let s = self.value(x);
                s * (1.0 - s)
            }
            Function::Abs => x.signum(),
            Function::Gaussian => -2.0 * x * math::exp(-x * x),
            Function::Arctan => 1.0 / (1.0 + x * x),
        }
    }

    /// The name in formulas and settings.
    pub fn name(self) -> &'static str {
        match self {
            Function::Identity => "x",
            Function::Square => "x^2",
            Function::Cube => "x^3",
            Function::Fourth => "x^4",
            Function::Inverse => "1/x",
            Function::InverseSquare => "1/x^2",
            Function::Sqrt => "sqrt",
            Function::InverseSqrt => "1/sqrt",
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Sin => "sin",
            Function::Cos => "cos",
            Function::Tan => "tan",
            Function::Tanh => "tanh",
            Function::Sigmoid => "sigmoid",
            Function::Abs => "abs",
            Function::Gaussian => "gaussian",
            Function::Arctan => "arctan",
        }
    }

    /// How hard it is to read: what a better fit has to make up for.
    pub fn complexity(self) -> f64 {
        match self {
            Function::Identity => 1.0,
            Function::Square | Function::Sin | Function::Cos | Function::Exp => 2.0,
            Function::Log | Function::Sqrt | Function::Inverse | Function::Cube => 2.0,
            Function::Tanh | Function::Abs | Function::InverseSquare => 3.0,
            _ => 3.5,
        }
    }

    /// The values of a and b worth a start, for points of mean 0 and half-range 1.
    fn starts(self) -> (&'static [f64], Starts) {
        const UNIT: &[f64] = &[1.0];
        const BOTH: &[f64] = &[1.0, -1.0];
        const RATES: &[f64] = &[
            -6.0, -4.0, -2.5, -1.5, -0.8, -0.3, 0.3, 0.8, 1.5, 2.5, 4.0, 6.0,
        ];
        const SCALES: &[f64] = &[0.3, 0.6, 1.0, 1.6, 2.5, 4.0, 6.5, 10.0];
        match self {
            Function::Identity => (UNIT, Starts::Zero),
            Function::Exp => (RATES, Starts::Zero),
            Function::Square | Function::Cube | Function::Fourth | Function::Abs => {
                (UNIT, Starts::Around)
            }
            Function::Inverse | Function::InverseSquare => (UNIT, Starts::Outside),
            Function::Sqrt | Function::Log | Function::InverseSqrt => (BOTH, Starts::Beyond),
            Function::Sin | Function::Cos | Function::Tan => (SCALES, Starts::Phase),
            Function::Tanh | Function::Sigmoid | Function::Gaussian | Function::Arctan => {
                (SCALES, Starts::Centre)
            }
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where b starts, given a, for points in [−1, 1].
#[derive(Clone, Copy)]
enum Starts {
    Zero,
    /// Anywhere near the points.
    Around,
    /// On either side of the points, where no pole is among them.
    Outside,
    /// So that a·x + b is positive for all points.
    Beyond,
    /// A period.
    Phase,
    /// a·(x − centre).
    Centre,
}

impl Starts {
    fn values(self, a: f64) -> Vec<f64> {
        let beyond = [1.001, 1.01, 1.05, 1.15, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0];
        match self {
            Starts::Zero => vec![0.0],
            Starts::Around => (-12..=12).map(|n| f64::from(n) * 0.25).collect(),
            Starts::Outside => beyond.iter().flat_map(|&b| [b, -b]).collect(),
            Starts::Beyond => beyond.to_vec(),
            Starts::Phase => (0..8)
                .map(|n| f64::from(n) * std::f64::consts::FRAC_PI_8)
                .collect(),
            Starts::Centre => (-5..=5).map(|n| -a * f64::from(n) * 0.3).collect(),
        }
    }
}

/// A function with its constants: c·f(a·x + b) + d.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// f.
    pub function: Function,
    /// The inner factor.
    pub a: f64,
    /// The inner offset.
    pub b: f64,
    /// The outer factor.
    pub c: f64,
    /// The outer offset.
    pub d: f64,
    /// The share of the variance that it explains; 1 is all.
    pub r2: f64,
}

impl Candidate {
    /// Its value.
    pub fn value(&self, x: f64) -> f64 {
        self.c * self.function.value(self.a * x + self.b) + self.d
    }

    /// What ranks candidates: bits of unexplained variance, plus what the function costs.
    pub fn score(&self) -> f64 {
        math::log2(1.0 - self.r2 + 1e-6) + self.function.complexity()
    }
}

fn variance(y: &[f64]) -> f64 {
    let deviation = super::edges::deviation(y);
    deviation * deviation
}

/// c and d for given a and b, and the mean squared error.
fn regress(function: Function, a: f64, b: f64, x: &[f64], y: &[f64]) -> Option<(f64, f64, f64)> {
    let n = x.len() as f64;
    let (mut su, mut suu, mut sy, mut suy) = (0.0, 0.0, 0.0, 0.0);
    for (&x, &y) in x.iter().zip(y) {
        let u = function.value(a * x + b);
        su += u;
        suu += u * u;
        sy += y;
        suy += u * y;
    }
    let spread = suu - su * su / n;
    // A spread that is NaN is refused with the infinite ones.
    if spread.is_nan() || spread <= 1e-12 * math::max(suu, 1e-12) || !suu.is_finite() {
        return None;
    }
    let c = (suy - su * sy / n) / spread;
    let d = (sy - c * su) / n;
    let error = x
        .iter()
        .zip(y)
        .map(|(&x, &y)| math::powi(c * function.value(a * x + b) + d - y, 2))
        .sum::<f64>();
    error.is_finite().then_some((c, d, error / n))
}

/// The best c·f(a·x + b) + d through points; `None` where the function has no value on them.
pub fn fit_function(function: Function, x: &[f64], y: &[f64]) -> Option<Candidate> {
    if x.len() != y.len() || x.len() < 4 || !x.iter().chain(y).all(|v| v.is_finite()) {
        return None;
    }
    let (lo, hi) = x.iter().fold((f64::MAX, f64::MIN), |(l, h), &x| {
        (math::min(l, x), math::max(h, x))
    });
    let (middle, half) = ((lo + hi) / 2.0, math::max((hi - lo) / 2.0, 1e-9));
    let u: Vec<f64> = x.iter().map(|x| (x - middle) / half).collect();
    let total = variance(y);
    if total <= 0.0 {
        return None;
    }
    let (rates, starts) = function.starts();
    let mut trials = Vec::new();
    for &a in rates {
        for b in starts.values(a) {
            if let Some((c, d, error)) = regress(function, a, b, &u, y) {
                trials.push(([a, b, c, d], error));
            }
        }
    }
    trials.sort_by(|p, q| p.1.total_cmp(&q.1));
    trials.truncate(4);
    let best = trials
        .into_iter()
        .map(|(p, error)| refine(function, p, error, &u, y))
        .min_by(|p, q| p.1.total_cmp(&q.1))?;
    let ([a, b, c, d], error) = best;
    Some(Candidate {
        function,
        a: a / half,
        b: b - a * middle / half,
        c,
        d,
        r2: 1.0 - error / total,
    })
}

/// Levenberg and Marquardt on all four constants.
fn refine(
    function: Function,
    mut p: [f64; 4],
    mut error: f64,
    x: &[f64],
    y: &[f64],
) -> ([f64; 4], f64) {
    let n = x.len() as f64;
    let mean_square = |p: &[f64; 4]| {
        x.iter()
            .zip(y)
            .map(|(&x, &y)| math::powi(p[2] * function.value(p[0] * x + p[1]) + p[3] - y, 2))
            .sum::<f64>()
            / n
    };
    let mut damping = 1e-3;
    for _ in 0..60 {
        let mut gram = [0.0; 16];
        let mut right = [0.0; 4];
        for (&x, &y) in x.iter().zip(y) {
            let z = p[0] * x + p[1];
            let (f, slope) = (function.value(z), function.slope(z));
            let row = [p[2] * slope * x, p[2] * slope, f, 1.0];
            let rest = y - (p[2] * f + p[3]);
            for r in 0..4 {
                right[r] += row[r] * rest;
                for c in 0..4 {
                    gram[r * 4 + c] += row[r] * row[c];
                }
            }
        }
        let mut damped = gram;
        for r in 0..4 {
            damped[r * 4 + r] += damping * gram[r * 4 + r] + 1e-12 * n;
        }
        cholesky(&mut damped, 4, f64::MIN_POSITIVE);
        cholesky_solve(&damped, &mut right, 4, 1);
        let next: [f64; 4] = std::array::from_fn(|r| p[r] + right[r]);
        let next_error = mean_square(&next);
        if next_error < error {
            let gain = error - next_error;
            (p, error) = (next, next_error);
            damping = math::max(damping * 0.3, 1e-12);
            if gain < 1e-14 * math::max(error, 1e-300) {
                break;
            }
        } else {
            damping *= 5.0;
            if damping > 1e8 {
                break;
            }
        }
    }
    (p, error)
}

/// Every function of a list fitted, best score first.
pub fn fit_all(library: &[Function], x: &[f64], y: &[f64]) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = library
        .iter()
        .filter_map(|&function| fit_function(function, x, y))
        .filter(|c| c.r2.is_finite())
        .collect();
    all.sort_by(|a, b| a.score().total_cmp(&b.score()));
    all
}
