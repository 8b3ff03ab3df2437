//! Every single change of a kernel's file.
//!
//! Words are changed where they stand: an operator, the edge of a comparison, a constant, an index by
//! one, a barrier that is dropped. What needs to be understood is found in the module that naga makes of
//! the file: stores, which are dropped or rounded to 16 bits, values that are, and operands that are
//! exchanged.

use std::collections::BTreeSet;
use std::ops::Range;

use naga::proc::TypeResolution;
use naga::valid::FunctionInfo;
use naga::{Block, Expression, Function, Module, ScalarKind, Span, Statement, TypeInner};

use super::accepted::{Parsed, parsed};
use super::tokens::{self, Kind, Token, closing, ends_value};
use crate::gpu::kernels::{COMMON, Kernel};
use crate::{Error, Result};

/// The path of what all kernels share.
pub(super) const SHARED: &str = "gpu/common.wgsl";

/// A single change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The file's path below `src`.
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// What is changed: `operator`, `edge`, `index`, `constant`, `barrier`, `store`, `operands`, `f16`.
    pub kind: &'static str,
    /// The function that it is in.
    pub function: String,
    /// The bytes of the file that are replaced.
    pub range: Range<usize>,
    /// By what.
    pub to: String,
    /// Its lines as they are.
    pub was: String,
    /// And as they become.
    pub becomes: String,
}

impl Mutant {
    /// The file with the change.
    pub(super) fn applied(&self, text: &str) -> String {
        let Range { start, end } = self.range;
        format!("{}{}{}", &text[..start], self.to, &text[end..])
    }
}

/// All changes of one file, in the order of the file. `kernel` is none for what all kernels share.
pub(super) fn of_file(kernel: Option<&Kernel>) -> Result<Vec<Mutant>> {
    let (file, own) = kernel.map_or((SHARED, COMMON), |k| (k.name, k.source()));
    let whole = kernel.map_or_else(|| COMMON.to_string(), |k| k.text(false));
    let parsed = parsed(&whole, false).map_err(|why| Error::Gpu {
        what: format!("{file}: {why}"),
        advice: "a kernel that naga refuses runs nowhere; correct the file".into(),
    })?;
    let mut changes = Changes {
        text: own,
        start: whole.len() - own.len(),
        made: BTreeSet::new(),
    };
    changes.of_words();
    changes.of_module(&parsed);
    let all = tokens::tokens(own);
    let functions = tokens::functions(own, &all);
    let named = changes.made.into_iter().filter_map(|change| {
        let (start, end, to, kind) = change;
        let within = functions.iter().find(|f| f.body.contains(&start))?;
        let range = start..end;
        let lines = lines_of(own, &range);
        let after = format!("{}{to}{}", &own[lines.start..start], &own[end..lines.end]);
        Some(Mutant {
            file,
            line: own[..start].matches('\n').count() + 1,
            kind,
            function: within.name.clone(),
            was: one_line(&own[lines]),
            becomes: one_line(&after),
            range,
            to,
        })
    });
    Ok(named.collect())
}

/// The whole lines around a range.
fn lines_of(text: &str, range: &Range<usize>) -> Range<usize> {
    let start = text[..range.start].rfind('\n').map_or(0, |i| i + 1);
    let end = text[range.end..].find('\n');
    start..end.map_or(text.len(), |i| range.end + i)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A replaced range, by what, and of which kind.
type Change = (usize, usize, String, &'static str);

struct Changes<'a> {
    /// The file.
    text: &'a str,
    /// Where it starts in what naga parsed.
    start: usize,
    /// None twice.
    made: BTreeSet<Change>,
}

impl Changes<'_> {
    fn replace(&mut self, range: Range<usize>, to: impl Into<String>, kind: &'static str) {
        let to = to.into();
        if self.text[range.clone()] != to {
            self.made.insert((range.start, range.end, to, kind));
        }
    }

    /// Changes of single words within functions.
    fn of_words(&mut self) {
        let all = tokens::tokens(self.text);
        for function in tokens::functions(self.text, &all) {
            let first = all.partition_point(|t| t.range.start < function.body.start);
            let end = all.partition_point(|t| t.range.start < function.body.end);
            for i in first..end {
                self.of_word(&all, i);
            }
        }
    }

    fn of_word(&mut self, all: &[Token], i: usize) {
        let text = self.text;
        let word = |i: usize| all.get(i).map_or("", |t| &text[t.range.clone()]);
        let range = all[i].range.clone();
        let between = i > 0 && ends_value(text, &all[i - 1]);
        match (all[i].kind, word(i)) {
            (Kind::Number, number) => {
                for to in other_numbers(number) {
                    self.replace(range.clone(), to, "constant");
                }
            }
            (Kind::Name, "true") => self.replace(range, "false", "constant"),
            (Kind::Name, "false") => self.replace(range, "true", "constant"),
            (Kind::Name, "min") => self.replace(range, "max", "operator"),
            (Kind::Name, "max") => self.replace(range, "min", "operator"),
            (Kind::Name, "abs") if word(i + 1) == "(" => self.replace(range, "", "operator"),
            (Kind::Name, "workgroupBarrier" | "storageBarrier") => {
                if let Some(end) = closing(text, all, i + 1) {
                    self.replace(range.start..all[end].range.end, "", "barrier");
                }
            }
            (Kind::Sign, "++") => self.replace(range, " += 2", "constant"),
            (Kind::Sign, "[") if between => self.of_index(all, i),
            (Kind::Sign, "-" | "!") if !between => self.replace(range, "", "operator"),
            (Kind::Sign, sign) if between => {
                if let Some((to, kind)) = other_sign(sign) {
                    self.replace(range, to, kind);
                }
            }
            _ => {}
        }
    }

    /// One further, one less. Where the index ends with a number, that number is changed anyway.
    fn of_index(&mut self, all: &[Token], open: usize) {
        let Some(close) = closing(self.text, all, open) else {
            return;
        };
        if close < open + 2 || all[close - 1].kind == Kind::Number {
            return;
        }
        let range = all[open].range.end..all[close].range.start;
        let index = self.text[range.clone()].to_string();
        for step in ["+ 1", "- 1"] {
            self.replace(range.clone(), format!("({index}) {step}"), "index");
        }
    }

    /// Changes of what naga understands.
    fn of_module(&mut self, parsed: &Parsed) {
        let (module, info) = (&parsed.module, &parsed.info);
        for (handle, function) in module.functions.iter() {
            self.of_function(module, function, &info[handle]);
        }
        for (i, entry) in module.entry_points.iter().enumerate() {
            self.of_function(module, &entry.function, info.get_entry_point(i));
        }
    }

    fn of_function(&mut self, module: &Module, function: &Function, info: &FunctionInfo) {
        let is_float = |handle: naga::Handle<Expression>| float_32(module, &info[handle].ty);
        for (handle, expression) in function.expressions.iter() {
            let Some(range) = self.own(function.expressions.get_span(handle)) else {
                continue;
            };
            match expression {
                Expression::Binary { op, .. } => self.exchange_sides(range, *op),
                Expression::Select { .. } | Expression::CallResult(_) => {
                    self.exchange_arguments(range)
                }
                Expression::Math {
                    arg1: Some(_), fun, ..
                } if !commutes(*fun) => {
                    self.exchange_arguments(range);
                }
                Expression::AccessIndex { .. } => self.of_component(range),
                _ => {}
            }
        }
        for handle in function.named_expressions.keys() {
            let range = self.own(function.expressions.get_span(*handle));
            if let Some(range) = range.filter(|_| is_float(*handle)) {
                self.round(range);
            }
        }
        self.of_block(&function.body, false, &|statement| match statement {
            Statement::Store { value, .. } => is_float(*value),
            Statement::Return { value: Some(value) } => is_float(*value),
            _ => false,
        });
    }

    fn of_block(&mut self, block: &Block, continues: bool, is_float: &dyn Fn(&Statement) -> bool) {
        for (statement, span) in block.span_iter() {
            match statement {
                Statement::Block(inner) => self.of_block(inner, continues, is_float),
                Statement::If { accept, reject, .. } => {
                    self.of_block(accept, continues, is_float);
                    self.of_block(reject, continues, is_float);
                }
                Statement::Switch { cases, .. } => {
                    let bodies = cases.iter().map(|case| &case.body);
                    bodies.for_each(|body| self.of_block(body, continues, is_float));
                }
                // What a loop does at its end is not dropped: it would never end.
                Statement::Loop {
                    body, continuing, ..
                } => {
                    self.of_block(body, continues, is_float);
                    self.of_block(continuing, true, is_float);
                }
                Statement::Store { .. } | Statement::Return { .. } => {
                    if let Some(range) = self.own(*span) {
                        let drops = !continues && matches!(statement, Statement::Store { .. });
                        self.of_store(range, drops, is_float(statement));
                    }
                }
                _ => {}
            }
        }
    }

    /// `a = b;`, `a += b;` or `return b;`
    fn of_store(&mut self, range: Range<usize>, drops: bool, is_float: bool) {
        let statement = self.text[range.clone()].trim_end_matches(';').trim_end();
        let range = range.start..range.start + statement.len();
        let declares = ["var", "let"].iter().any(|w| statement.starts_with(w));
        let returns = statement.starts_with("return");
        let all = tokens::tokens(statement);
        let of = |t: &Token| &statement[t.range.clone()];
        let assigns = all.iter().find(|t| {
            let sign = of(t);
            sign == "=" || (sign.len() == 2 && sign.ends_with('=') && !"=!<>".contains(&sign[..1]))
        });
        if drops && !declares && assigns.is_some() {
            self.replace(range.clone(), "", "store");
        }
        let value = match returns {
            true => Some("return".len()),
            false => assigns.map(|t| t.range.end),
        };
        if let Some(at) = value.filter(|_| is_float && !declares) {
            let spaces = statement[at..].len() - statement[at..].trim_start().len();
            self.round(range.start + at + spaces..range.end);
        }
    }

    /// A value with 11 bits.
    fn round(&mut self, range: Range<usize>) {
        let value = self.text[range.clone()].to_string();
        // One that is written as a constant, or called by its name, is exact or rounded elsewhere.
        if tokens::tokens(&value).len() > 1 {
            self.replace(range, format!("quantizeToF16({value})"), "f16");
        }
    }

    /// `v.x` and its neighbour.
    fn of_component(&mut self, range: Range<usize>) {
        let to = match self.text[range.clone()].rsplit_once('.') {
            Some((_, "x")) => "y",
            Some((_, "y")) => "x",
            Some((_, "z")) => "w",
            Some((_, "w")) => "z",
            _ => return,
        };
        self.replace(range.end - 1..range.end, to, "index");
    }

    fn exchange_sides(&mut self, range: Range<usize>, op: naga::BinaryOperator) {
        use naga::BinaryOperator as Op;
        let sign = match op {
            Op::Subtract => "-",
            Op::Divide => "/",
            Op::Modulo => "%",
            Op::Less => "<",
            Op::LessEqual => "<=",
            Op::Greater => ">",
            Op::GreaterEqual => ">=",
            _ => return,
        };
        let text = &self.text[range.clone()];
        let all = tokens::tokens(text);
        let Some(at) = last_between(text, &all, sign) else {
            return;
        };
        let (left, right) = (text[..at.start].trim_end(), text[at.end..].trim_start());
        if left != right && !left.contains('\n') {
            let to = format!("({right}) {sign} ({left})");
            self.replace(range, to, "operands");
        }
    }

    /// The first two arguments.
    fn exchange_arguments(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        let all = tokens::tokens(text);
        let Some(open) = all.iter().position(|t| &text[t.range.clone()] == "(") else {
            return;
        };
        let Some(close) = closing(text, &all, open).filter(|&c| c + 1 == all.len()) else {
            return;
        };
        let mut ends = Vec::new();
        let mut depth = 0;
        for token in &all[open..=close] {
            match &text[token.range.clone()] {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                "," if depth == 1 => ends.push(token.range.clone()),
                _ => {}
            }
        }
        let Some(first_end) = ends.first().cloned() else {
            return;
        };
        let last = ends.get(1).map_or(all[close].range.start, |e| e.start);
        let start = all[open].range.end;
        let (a, b) = (&text[start..first_end.start], &text[first_end.end..last]);
        let (a, b) = (a.trim(), b.trim());
        if a != b && !b.is_empty() {
            let to = format!("{b}, {a}");
            self.replace(range.start + start..range.start + last, to, "operands");
        }
    }

    /// Where a span of naga's lies in the file.
    fn own(&self, span: Span) -> Option<Range<usize>> {
        let range = span.to_range()?;
        let start = range.start.checked_sub(self.start)?;
        let end = range.end.checked_sub(self.start)?;
        (start < end && end <= self.text.len()).then_some(start..end)
    }
}

/// The last operator of that sign that is in no bracket.
fn last_between(text: &str, all: &[Token], sign: &str) -> Option<Range<usize>> {
    let mut depth = 0;
    let mut found = None;
    for (i, token) in all.iter().enumerate() {
        match &text[token.range.clone()] {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            word if word == sign && depth == 0 && i > 0 && ends_value(text, &all[i - 1]) => {
                found = Some(token.range.clone());
            }
            _ => {}
        }
    }
    found
}

fn float_32(module: &Module, ty: &TypeResolution) -> bool {
    let scalar = match ty.inner_with(&module.types) {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar,
        _ => return false,
    };
    scalar.kind == ScalarKind::Float && scalar.width == 4
}

fn commutes(fun: naga::MathFunction) -> bool {
    use naga::MathFunction as Fun;
    matches!(fun, Fun::Min | Fun::Max | Fun::Dot)
}

/// What an operator becomes.
fn other_sign(sign: &str) -> Option<(&'static str, &'static str)> {
    Some(match sign {
        "+" => ("-", "operator"),
        "-" => ("+", "operator"),
        "*" => ("/", "operator"),
        "/" => ("*", "operator"),
        "%" => ("/", "operator"),
        "+=" => ("-=", "operator"),
        "-=" => ("+=", "operator"),
        "*=" => ("/=", "operator"),
        "/=" => ("*=", "operator"),
        "&&" => ("||", "operator"),
        "||" => ("&&", "operator"),
        "&" => ("|", "operator"),
        "|" => ("&", "operator"),
        "^" => ("|", "operator"),
        "<<" => (">>", "operator"),
        ">>" => ("<<", "operator"),
        "<" => ("<=", "edge"),
        "<=" => ("<", "edge"),
        ">" => (">=", "edge"),
        ">=" => (">", "edge"),
        "==" => ("!=", "operator"),
        "!=" => ("==", "operator"),
        _ => return None,
    })
}

/// One more and one less; a float half as large again, and 1 for 0.
fn other_numbers(number: &str) -> Vec<String> {
    if number.starts_with("0x") {
        return vec![format!("({number} + 1u)")];
    }
    if number.contains(['.', 'e']) {
        let is_zero = number.trim_end_matches('f').parse() == Ok(0.0);
        return vec![match is_zero {
            true => "1.0".to_string(),
            false => format!("(1.5 * {number})"),
        }];
    }
    let digits = number.trim_end_matches(['u', 'i', 'f']);
    let suffix = &number[digits.len()..];
    let Ok(value) = digits.parse::<u64>() else {
        return Vec::new();
    };
    let less = value.checked_sub(1).into_iter();
    let others = less.chain([value + 1]);
    others.map(|n| format!("{n}{suffix}")).collect()
}
