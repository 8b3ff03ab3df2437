//! Formulas that users write, for generated data: `x*y + sin(x)`.
//!
//! `+ − * / ^` with the usual precedence (`^` from the right, before a sign: −x^2 is −(x²)),
//! parentheses, numbers, `pi`, `e`, the names of the inputs, and the functions `sin cos tan asin
//! acos atan sinh cosh tanh exp ln log sqrt abs square` (`log` is the natural one).

use super::files::{did_you_mean, list};
use crate::math;
use crate::{Error, Result};

/// A formula, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Formula {
    /// In postfix order: evaluation needs no recursion, however long the text.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Number(f64),
    Variable(usize),
    Call(fn(f64) -> f64),
    Apply(fn(f64, f64) -> f64),
}

/// A function of one number, by its name.
type Named = (&'static str, fn(f64) -> f64);

const FUNCTIONS: [Named; 15] = [
    ("sin", math::sin),
    ("cos", math::cos),
    ("tan", math::tan),
    ("asin", math::asin),
    ("acos", math::acos),
    ("atan", math::atan),
    ("sinh", math::sinh),
    ("cosh", math::cosh),
    ("tanh", math::tanh),
    ("exp", math::exp),
    ("ln", math::ln),
    ("log", math::ln),
    ("sqrt", f64::sqrt),
    ("abs", f64::abs),
    ("square", |x| x * x),
];

const CONSTANTS: [(&str, f64); 2] = [("pi", std::f64::consts::PI), ("e", std::f64::consts::E)];

/// Parentheses and signs inside one another; more is no formula of a person.
const DEPTH: usize = 100;

impl Formula {
    /// Understands a formula of those inputs.
    pub fn parse<S: AsRef<str>>(text: &str, inputs: &[S]) -> Result<Self> {
        let inputs: Vec<&str> = inputs.iter().map(AsRef::as_ref).collect();
        let mut parser = Parser {
            text,
            at: 0,
            inputs: &inputs,
            steps: Vec::new(),
            depth: 0,
        };
        parser.sum()?;
        if !parser.rest().is_empty() {
            return Err(parser.error("an operator or the end"));
        }
        Ok(Formula {
            steps: parser.steps,
        })
    }

    /// The value for those inputs, in the order of [`parse`](Self::parse).
    pub fn evaluate(&self, inputs: &[f64]) -> f64 {
        let mut stack = Vec::with_capacity(8);
        for step in &self.steps {
            let value = match *step {
                Step::Number(number) => number,
                Step::Variable(i) => inputs[i],
                Step::Call(function) => function(stack.pop().expect("an argument")),
                Step::Apply(operator) => {
                    let right = stack.pop().expect("a right side");
                    operator(stack.pop().expect("a left side"), right)
                }
            };
            stack.push(value);
        }
        stack.pop().expect("a value")
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    inputs: &'a [&'a str],
    steps: Vec<Step>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn error(&mut self, needed: impl std::fmt::Display) -> Error {
        let got: String = self.rest().chars().take(16).collect();
        let got = if got.is_empty() {
            "its end".to_string()
        } else {
            format!("{got:?}")
        };
        let what = format!("formula {:?}, character {}", self.text, self.at);
        Error::invalid(what, got, needed)
    }

    fn passes(&mut self, symbol: char) -> bool {
        let here = self.rest().starts_with(symbol);
        if here {
            self.at += symbol.len_utf8();
        }
        here
    }

    fn sum(&mut self) -> Result<()> {
        self.product()?;
        loop {
            let operator: fn(f64, f64) -> f64 = if self.passes('+') {
                |a, b| a + b
            } else if self.passes('-') {
                |a, b| a - b
            } else {
                return Ok(());
            };
            self.product()?;
            self.steps.push(Step::Apply(operator));
        }
    }

    fn product(&mut self) -> Result<()> {
        self.signed()?;
        loop {
            let operator: fn(f64, f64) -> f64 = if self.passes('*') {
                |a, b| a * b
            } else if self.passes('/') {
                |a, b| a / b
            } else {
                return Ok(());
            };
            self.signed()?;
            self.steps.push(Step::Apply(operator));
        }
    }

    fn signed(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.error(format!(
                "at most {DEPTH} parentheses, signs and powers inside one another"
            )));
        }
        if self.passes('-') {
            self.signed()?;
            self.steps.push(Step::Call(|x| -x));
        } else if self.passes('+') {
            self.signed()?;
        } else {
            self.atom()?;
            if self.passes('^') {
                self.signed()?;
                self.steps.push(Step::Apply(power));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn atom(&mut self) -> Result<()> {
        if self.passes('(') {
            self.sum()?;
            return self.close();
        }
        let rest = self.rest();
        let word = |rest: &'a str, start: fn(char) -> bool| -> &'a str {
            let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            if !rest.starts_with(start) {
                return "";
            }
            let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
            &rest[..end]
        };
        let mut number = word(rest, |c| c.is_ascii_digit() || c == '.');
        // The sign of an exponent: 1e-3.
        if number.ends_with(['e', 'E']) && rest[number.len()..].starts_with(['+', '-']) {
            let digits = &rest[number.len() + 1..];
            let more = digits.len()
                - digits
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            number = &rest[..number.len() + 1 + more];
        }
        if !number.is_empty() {
            let value = number.parse().map_err(|_| self.error("a number"))?;
            self.at += number.len();
            self.steps.push(Step::Number(value));
            return Ok(());
        }
        let name = word(rest, |c| c.is_alphabetic() || c == '_');
        if name.is_empty() {
            return Err(self.error("a number, a name or a parenthesis"));
        }
        if let Some(i) = self.inputs.iter().position(|&i| i == name) {
            self.at += name.len();
            self.steps.push(Step::Variable(i));
            return Ok(());
        }
        if let Some((_, value)) = CONSTANTS.iter().find(|(n, _)| *n == name) {
            self.at += name.len();
            self.steps.push(Step::Number(*value));
            return Ok(());
        }
        if let Some((_, function)) = FUNCTIONS.iter().find(|(n, _)| *n == name) {
            self.at += name.len();
            if !self.passes('(') {
                return Err(self.error(format!("a parenthesis after {name}")));
            }
            self.sum()?;
            self.close()?;
            self.steps.push(Step::Call(*function));
            return Ok(());
        }
        let constants = CONSTANTS.iter().map(|(n, _)| *n);
        let functions = FUNCTIONS.iter().map(|(n, _)| *n);
        let known = self
            .inputs
            .iter()
            .copied()
            .chain(constants)
            .chain(functions);
        let hint = did_you_mean(name, known);
        let inputs = list(self.inputs.iter().copied());
        Err(self.error(format!("one of the inputs {inputs} or a function{hint}")))
    }

    fn close(&mut self) -> Result<()> {
        if self.passes(')') {
            return Ok(());
        }
        Err(self.error("a closing parenthesis or an operator"))
    }
}

/// Whole powers by multiplication, exact for squares.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent.fract() == 0.0 && exponent.abs() <= 64.0 {
        math::powi(base, exponent as i32)
    } else {
        math::powf(base, exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> f64 {
        let formula = Formula::parse(text, &["x", "y_1"]);
        formula
            .unwrap_or_else(|e| panic!("{e}"))
            .evaluate(&[3.0, 2.0])
    }

    #[test]
    fn precedence_functions_and_constants() {
        assert_eq!(value("1 + 2*x^2 - y_1/4"), 18.5);
        assert_eq!(value("-x^2"), -9.0);
        assert_eq!(value("2^-1"), 0.5);
        assert_eq!(value("2^3^2"), 512.0);
        assert_eq!(value("(1+2)*(x-1)"), 6.0);
        assert_eq!(value("1e-3 + .5 + 2E2"), 200.501);
        assert_eq!(value("x*y_1 + sin(x)"), 6.0 + math::sin(3.0));
        assert_eq!(
            value("exp(ln(x)) - sqrt(abs(-9))"),
            math::exp(math::ln(3.0)) - 3.0
        );
        assert_eq!(value("cos(pi)+ e"), -1.0 + std::f64::consts::E);
        assert_eq!(value("8 - 2 - 1"), 5.0);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let message = |text: &str| Formula::parse(text, &["x"]).unwrap_err().to_string();
        assert!(message("x + z").contains("character 4"));
        assert!(message("sim(x)").contains("did you mean \"sin\"?"));
        assert!(message("x +").contains("its end"));
        assert!(message("(x").contains("closing parenthesis"));
        assert!(message("x y").contains("an operator"));
        assert!(message("sin x").contains("after sin"));
        assert!(message("1.2.3").contains("a number"));
        assert!(message("").contains("its end"));
        let deep = "(".repeat(100_000);
        assert!(message(&deep).contains("at most 100"));
        let long = vec!["x"; 100_000].join("+");
        let long = Formula::parse(&long, &["x"]).unwrap();
        assert_eq!(long.evaluate(&[1.0]), 100_000.0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+*/^().0-9exysinpi µ]{0,40}") {
            if let Ok(formula) = Formula::parse(&text, &["x", "y"]) {
                formula.evaluate(&[0.5, 2.0]);
            }
        }
    }
}
