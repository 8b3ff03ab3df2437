//! Formulas: polynomials in variables and in functions of polynomials.
//!
//! Sums, products and small powers are multiplied out, so that what a network computes in many
//! steps, (x + y)²/4 − (x − y)²/4, is read as what it is: x·y.

use crate::math;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::symbolic::Function;

/// A variable, or a function of an expression.
#[derive(Clone, Debug)]
enum Atom {
    Variable(usize),
    Apply(Function, Arc<Expression>),
}

/// A product of powers of atoms, by the atoms' texts.
type Monomial = Vec<(String, u32)>;

/// A formula in the variables x_1, x_2, …
#[derive(Clone, Debug, Default)]
pub struct Expression {
    terms: BTreeMap<Monomial, f64>,
    atoms: BTreeMap<String, Atom>,
}

/// More terms than this are not multiplied out.
const MAX_TERMS: usize = 60;

impl Expression {
    /// A number.
    pub fn constant(value: f64) -> Self {
        let mut terms = BTreeMap::new();
        terms.insert(Vec::new(), value);
        Expression {
            terms,
            atoms: BTreeMap::new(),
        }
    }

    /// The n-th variable, counted from 0, printed as x_{n+1}.
    pub fn variable(n: usize) -> Self {
        Self::atom(format!("x_{}", n + 1), Atom::Variable(n))
    }

    fn atom(text: String, atom: Atom) -> Self {
        let mut terms = BTreeMap::new();
        terms.insert(vec![(text.clone(), 1)], 1.0);
        let mut atoms = BTreeMap::new();
        atoms.insert(text, atom);
        Expression { terms, atoms }
    }

    /// This plus another times a factor.
    pub fn add(&self, other: &Expression, factor: f64) -> Self {
        let mut sum = self.clone();
        for (monomial, c) in &other.terms {
            *sum.terms.entry(monomial.clone()).or_insert(0.0) += factor * c;
        }
        sum.atoms.extend(other.atoms.clone());
        sum
    }

    /// The product with a number, plus a number.
    pub fn affine(&self, factor: f64, offset: f64) -> Self {
        Expression::constant(offset).add(self, factor)
    }

    fn multiply(&self, other: &Expression) -> Self {
        let mut product = Expression {
            terms: BTreeMap::new(),
            atoms: self.atoms.clone(),
        };
        product.atoms.extend(other.atoms.clone());
        for (m, a) in &self.terms {
            for (n, b) in &other.terms {
                let mut powers: BTreeMap<&str, u32> = BTreeMap::new();
                for (atom, power) in m.iter().chain(n) {
                    *powers.entry(atom).or_insert(0) += power;
                }
                let monomial = powers.iter().map(|(&a, &p)| (a.to_string(), p)).collect();
                *product.terms.entry(monomial).or_insert(0.0) += a * b;
            }
        }
        product
    }

    /// The number, where it is nothing else.
    fn as_constant(&self) -> Option<f64> {
        match self.terms.len() {
            0 => Some(0.0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// A function of this.
    pub fn apply(&self, function: Function) -> Self {
        if let Some(value) = self.as_constant() {
            return Expression::constant(function.value(value));
        }
        let power = match function {
            Function::Identity => 1,
            Function::Square => 2,
            Function::Cube => 3,
            Function::Fourth => 4,
            _ => 0,
        };
        if power > 0 && self.terms.len().pow(power) <= MAX_TERMS.pow(2) {
            let mut product = self.clone();
            for _ in 1..power {
                product = product.multiply(self);
            }
            if product.terms.len() <= MAX_TERMS {
                return product;
            }
        }
        let inner = self.text();
        let text = match function {
            Function::Square => format!("({inner})^2"),
            Function::Cube => format!("({inner})^3"),
            Function::Fourth => format!("({inner})^4"),
            Function::Inverse => format!("1/({inner})"),
            Function::InverseSquare => format!("1/({inner})^2"),
            Function::InverseSqrt => format!("1/sqrt({inner})"),
            Function::Gaussian => format!("exp(-({inner})^2)"),
            _ => format!("{function}({inner})"),
        };
        Self::atom(text, Atom::Apply(function, Arc::new(self.clone())))
    }

    /// A root of this, with the largest coefficient taken out: 3·√(0.25x² + 0.25) is 1.5·√(x² + 1).
    /// The other way round for its inverse.
    pub fn apply_root(&self, function: Function) -> Self {
        let coefficients = self
            .terms
            .iter()
            .filter(|(monomial, _)| !monomial.is_empty());
        let largest = coefficients.fold(0.0_f64, |m, (_, c)| math::max(m, c.abs()));
        if largest == 0.0 {
            return self.apply(function);
        }
        let outside = match function {
            Function::InverseSqrt => 1.0 / largest.sqrt(),
            _ => largest.sqrt(),
        };
        let inner = self.affine(1.0 / largest, 0.0);
        inner.apply(function).affine(outside, 0.0)
    }

    /// A sine or cosine of this, with a phase near a multiple of π/2 taken out and a leading sign
    /// made positive: sin(−x + π/2) is cos(x).
    pub fn apply_wave(&self, function: Function) -> Self {
        let quarter = std::f64::consts::FRAC_PI_2;
        let phase = self.terms.get(&Vec::new()).copied().unwrap_or(0.0);
        let turns = (phase / quarter).round();
        // 0.005 is below what a formula with three decimals shows in its value.
        let near = (phase - turns * quarter).abs() < 5e-3;
        let kept = if near {
            0.0
        } else {
            phase - (turns / 4.0).trunc() * 4.0 * quarter
        };
        let mut inner = self.clone();
        inner.terms.insert(Vec::new(), kept);
        inner.terms.retain(|_, c| *c != 0.0);
        let quarters = if near {
            (turns as i64).rem_euclid(4)
        } else {
            0
        };
        // sin(z + n·π/2): sin, cos, −sin, −cos; the cosine is one quarter ahead.
        let ahead = quarters + i64::from(function == Function::Cos);
        let (mut wave, mut sign) = match ahead.rem_euclid(4) {
            0 => (Function::Sin, 1.0),
            1 => (Function::Cos, 1.0),
            2 => (Function::Sin, -1.0),
            _ => (Function::Cos, -1.0),
        };
        if !near {
            (wave, sign) = (function, 1.0);
        }
        let leads_negative = inner
            .ordered()
            .iter()
            .find(|(m, _)| !m.is_empty())
            .is_some_and(|(_, c)| *c < 0.0);
        if leads_negative {
            inner = inner.affine(-1.0, 0.0);
            inner.terms.retain(|_, c| *c != 0.0);
            if wave == Function::Sin {
                sign = -sign;
            }
        }
        inner.apply(wave).affine(sign, 0.0)
    }

    /// Coefficients rounded to that many decimals, in functions, too, and terms of 0 left out: the
    /// formula as it is printed, and its value is that of the print.
    pub fn rounded(&self, decimals: i32) -> Self {
        let scale = math::powi(10_f64, decimals);
        let round = |c: f64| (c * scale).round() / scale;
        let mut result = Expression::default();
        for (monomial, &c) in &self.terms {
            if round(c) == 0.0 {
                continue;
            }
            let mut product = Expression::constant(round(c));
            for (name, power) in monomial {
                let atom = match &self.atoms[name] {
                    Atom::Variable(n) => Expression::variable(*n),
                    Atom::Apply(function, inner) => inner.rounded(decimals).apply(*function),
                };
                for _ in 0..*power {
                    product = product.multiply(&atom);
                }
            }
            result = result.add(&product, 1.0);
        }
        // What came together may have become small again.
        result.terms.retain(|_, c| round(*c) != 0.0);
        result
    }

    /// The value at a point.
    pub fn value(&self, x: &[f64]) -> f64 {
        self.terms
            .iter()
            .map(|(monomial, c)| {
                c * monomial
                    .iter()
                    .map(|(name, power)| {
                        let value = match &self.atoms[name] {
                            Atom::Variable(n) => x[*n],
                            Atom::Apply(function, inner) => function.value(inner.value(x)),
                        };
                        math::powi(value, *power as i32)
                    })
                    .product::<f64>()
            })
            .sum()
    }

    /// The functions that occur in it, sorted.
    pub fn functions(&self) -> Vec<Function> {
        let mut all = Vec::new();
        for monomial in self.terms.keys() {
            for (name, _) in monomial {
                if let Atom::Apply(function, inner) = &self.atoms[name] {
                    all.push(*function);
                    all.extend(inner.functions());
                }
            }
        }
        all.sort();
        all.dedup();
        all
    }

    /// The terms as (coefficient, product), largest power first, the constant last.
    fn ordered(&self) -> Vec<(&Monomial, f64)> {
        let mut terms: Vec<_> = self.terms.iter().map(|(m, &c)| (m, c)).collect();
        terms.retain(|t| t.1 != 0.0);
        terms.sort_by_key(|(m, _)| std::cmp::Reverse(m.iter().map(|(_, p)| *p).sum::<u32>()));
        terms
    }

    fn print(
        &self,
        times: &str,
        product: impl Fn(&Monomial, &BTreeMap<String, Atom>) -> String,
    ) -> String {
        let mut text = String::new();
        for (n, (monomial, c)) in self.ordered().into_iter().enumerate() {
            let sign = match (n, c < 0.0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            text.push_str(sign);
            let body = product(monomial, &self.atoms);
            let number = number(c.abs());
            let _ = match (body.is_empty(), number == "1") {
                (true, _) => write!(text, "{number}"),
                (false, true) => write!(text, "{body}"),
                (false, false) => write!(text, "{number}{times}{body}"),
            };
        }
        if text.is_empty() { "0".into() } else { text }
    }

    /// As plain text, that Python and Julia read (`^` apart).
    pub fn text(&self) -> String {
        self.print("*", |monomial, _| {
            let factors = monomial.iter().map(|(name, power)| match power {
                1 => name.clone(),
                _ => format!("{name}^{power}"),
            });
            factors.collect::<Vec<_>>().join("*")
        })
    }

    /// As LaTeX.
    pub fn latex(&self) -> String {
        self.print(r"\,", |monomial, atoms| {
            let factors = monomial.iter().map(|(name, power)| {
                let base = match &atoms[name] {
                    Atom::Variable(n) => format!("x_{{{}}}", n + 1),
                    Atom::Apply(function, inner) => latex_of(*function, &inner.latex()),
                };
                match (power, &atoms[name]) {
                    (1, _) => base,
                    (_, Atom::Variable(_)) => format!("{base}^{{{power}}}"),
                    _ => format!(r"\left({base}\right)^{{{power}}}"),
                }
            });
            factors.collect::<Vec<_>>().join(r"\,")
        })
    }
}

fn latex_of(function: Function, inner: &str) -> String {
    match function {
        Function::Identity => format!(r"\left({inner}\right)"),
        Function::Square => format!(r"\left({inner}\right)^{{2}}"),
        Function::Cube => format!(r"\left({inner}\right)^{{3}}"),
        Function::Fourth => format!(r"\left({inner}\right)^{{4}}"),
        Function::Inverse => format!(r"\frac{{1}}{{{inner}}}"),
        Function::InverseSquare => format!(r"\frac{{1}}{{\left({inner}\right)^{{2}}}}"),
        Function::Sqrt => format!(r"\sqrt{{{inner}}}"),
        Function::InverseSqrt => format!(r"\frac{{1}}{{\sqrt{{{inner}}}}}"),
        Function::Exp => format!(r"e^{{{inner}}}"),
        Function::Gaussian => format!(r"e^{{-\left({inner}\right)^{{2}}}}"),
        Function::Abs => format!(r"\left|{inner}\right|"),
        Function::Sigmoid => format!(r"\sigma\left({inner}\right)"),
        other => format!(r"\{other}\left({inner}\right)"),
    }
}

/// Shortest digits, at most six after the point.
fn number(c: f64) -> String {
    let mut text = format!("{c:.6}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if text == "0" {
        format!("{c:.2e}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_sums_come_out_as_products() {
        let (x, y) = (Expression::variable(0), Expression::variable(1));
        let sum = x.add(&y, 1.0).apply(Function::Square);
        let difference = x.add(&y, -1.0).apply(Function::Square);
        let product = sum.affine(0.25, 0.0).add(&difference, -0.25).rounded(3);
        assert_eq!(product.text(), "x_1*x_2");
        assert_eq!(product.latex(), r"x_{1}\,x_{2}");
        assert_eq!(product.value(&[3.0, -2.0]), -6.0);
    }

    #[test]
    fn rounding_reaches_into_functions_and_drops_zeros() {
        let x = Expression::variable(0);
        let inner = x.affine(1.0002, -0.0003);
        let formula = inner.apply(Function::Sin).affine(0.9999, 1e-5).rounded(3);
        assert_eq!(formula.text(), "sin(x_1)");
        assert_eq!(formula.functions(), [Function::Sin]);
        let root = x.affine(2.0, 1.0).apply(Function::Sqrt).affine(-1.5, 0.25);
        assert_eq!(root.text(), "-1.5*sqrt(2*x_1 + 1) + 0.25");
        assert_eq!(root.latex(), r"-1.5\,\sqrt{2\,x_{1} + 1} + 0.25");
    }
}
