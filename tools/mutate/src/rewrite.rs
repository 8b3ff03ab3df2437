//! The changes, on syn's tree. An expression e becomes
//! `if crate::mutant::at(N) { changed } else { e }`, so that every mutant is one number away.
//!
//! | kind | right | changed |
//! |---|---|---|
//! | operator | a + b, a − b, a · b, a / b | a − b, a + b, a + b, a · b |
//! | edge | a < b, a ≤ b, a > b, a ≥ b | a ≤ b, a < b, a ≥ b, a > b |
//! | equality | a == b, a != b | the other |
//! | adding | a += b, a −= b | a = b |
//! | bound | a..b | a..b − 1 |
//! | constant | a number n | n + 1 |
//! | index | x\[i\] | x\[i + 1\] |
//! | skipped | a call or an addition as a statement | nothing |
//! | logic | a && b, a \|\| b | the other |
//!
//! Left alone: what the compiler evaluates (constants, array lengths, patterns), text and messages,
//! assertions, functions that report or draw, and code in macros, whose tokens have no tree.

use proc_macro2::Span;
use quote::quote;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Block, Expr, ExprBinary, Lit, Stmt, parse_quote};

/// Tokens as an expression; nothing looks into it any more.
macro_rules! verbatim {
    ($($tokens:tt)*) => {
        Expr::Verbatim(quote!($($tokens)*))
    };
}

/// One change.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub number: u32,
    pub file: String,
    pub line: usize,
    pub kind: &'static str,
    pub was: String,
}

/// Rewrites the functions of one file.
pub struct Rewriter<'a> {
    pub file: String,
    pub next: u32,
    pub made: Vec<Mutant>,
    /// Numbers that did not compile.
    pub refused: &'a std::collections::BTreeSet<u32>,
    within_function: bool,
}

impl<'a> Rewriter<'a> {
    pub fn new(file: String, next: u32, refused: &'a std::collections::BTreeSet<u32>) -> Self {
        Rewriter {
            file,
            next,
            made: Vec::new(),
            refused,
            within_function: false,
        }
    }

    /// The next number, where it compiles.
    fn number(&mut self, kind: &'static str, at: Span, was: &dyn quote::ToTokens) -> Option<u32> {
        let number = self.next;
        self.next += 1;
        if self.refused.contains(&number) {
            return None;
        }
        let mut text = quote!(#was).to_string();
        if text.len() > 70 {
            text = text.chars().take(70).collect();
        }
        self.made.push(Mutant {
            number,
            file: self.file.clone(),
            line: at.start().line,
            kind,
            was: text,
        });
        Some(number)
    }

    fn binary(&mut self, e: &ExprBinary) -> Option<Expr> {
        let (kind, other): (&'static str, BinOp) = match e.op {
            BinOp::Add(_) => ("operator", parse_quote!(-)),
            BinOp::Sub(_) => ("operator", parse_quote!(+)),
            BinOp::Mul(_) => ("operator", parse_quote!(+)),
            BinOp::Div(_) => ("operator", parse_quote!(*)),
            BinOp::Lt(_) => ("edge", parse_quote!(<=)),
            BinOp::Le(_) => ("edge", parse_quote!(<)),
            BinOp::Gt(_) => ("edge", parse_quote!(>=)),
            BinOp::Ge(_) => ("edge", parse_quote!(>)),
            BinOp::Eq(_) => ("equality", parse_quote!(!=)),
            BinOp::Ne(_) => ("equality", parse_quote!(==)),
            BinOp::And(_) => ("logic", parse_quote!(||)),
            BinOp::Or(_) => ("logic", parse_quote!(&&)),
            _ => return None,
        };
        // `if let … && …` has no other form.
        if matches!(e.op, BinOp::And(_)) && (is_let(&e.left) || is_let(&e.right)) {
            return None;
        }
        let (left, right) = (&e.left, &e.right);
        let number = self.number(kind, e.op.span(), e)?;
        Some(verbatim!((if crate::mutant::at(#number) { #left #other #right } else { #e })))
    }
}

fn is_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) if matches!(b.op, BinOp::And(_)) => is_let(&b.left) || is_let(&b.right),
        Expr::Paren(p) => is_let(&p.expr),
        _ => false,
    }
}

/// Whether an attribute keeps a function or module out: tests, and what the compiler evaluates.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = quote!(#a).to_string();
        text.contains("cfg (test)") || text.contains("cfg (all (test") || text == "# [test]"
    })
}

/// Functions whose work is words, checks of files or pictures.
fn is_words(name: &str) -> bool {
    [
        "fmt",
        "check",
        "message",
        "describe",
        "note",
        "serialize",
        "deserialize",
        "faults",
        "sizes",
        "small",
    ]
    .iter()
    .any(|w| name == *w || name.starts_with(&format!("{w}_")))
}

impl VisitMut for Rewriter<'_> {
    fn visit_item_fn_mut(&mut self, f: &mut syn::ItemFn) {
        if is_test(&f.attrs) || f.sig.constness.is_some() || is_words(&f.sig.ident.to_string()) {
            return;
        }
        let outer = std::mem::replace(&mut self.within_function, true);
        self.visit_block_mut(&mut f.block);
        self.within_function = outer;
    }

    fn visit_impl_item_fn_mut(&mut self, f: &mut syn::ImplItemFn) {
        if is_test(&f.attrs) || f.sig.constness.is_some() || is_words(&f.sig.ident.to_string()) {
            return;
        }
        let outer = std::mem::replace(&mut self.within_function, true);
        self.visit_block_mut(&mut f.block);
        self.within_function = outer;
    }

    fn visit_item_mod_mut(&mut self, m: &mut syn::ItemMod) {
        if !is_test(&m.attrs) {
            visit_mut::visit_item_mod_mut(self, m);
        }
    }

    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}
    fn visit_attribute_mut(&mut self, _: &mut syn::Attribute) {}
    fn visit_macro_mut(&mut self, _: &mut syn::Macro) {}

    fn visit_block_mut(&mut self, block: &mut Block) {
        visit_mut::visit_block_mut(self, block);
        for statement in &mut block.stmts {
            let Stmt::Expr(e, Some(_)) = statement else {
                continue;
            };
            let skipped = match e {
                Expr::MethodCall(_) | Expr::Call(_) => true,
                Expr::Binary(b) => matches!(
                    b.op,
                    BinOp::AddAssign(_)
                        | BinOp::SubAssign(_)
                        | BinOp::MulAssign(_)
                        | BinOp::DivAssign(_)
                ),
                _ => false,
            };
            if !skipped {
                continue;
            }
            if let Expr::Binary(b) = &*e
                && matches!(b.op, BinOp::AddAssign(_) | BinOp::SubAssign(_))
                && let Some(number) = self.number("adding", b.op.span(), e)
            {
                let (left, right) = (&b.left, &b.right);
                let changed: Expr =
                    verbatim!(if crate::mutant::at(#number) { #left = #right; } else { #e; });
                *e = changed;
            }
            let was = e.clone();
            if let Some(number) = self.number("skipped", was.span(), &was) {
                let changed: Expr = verbatim!(if !crate::mutant::at(#number) { #was; });
                *e = changed;
            }
        }
    }

    fn visit_expr_mut(&mut self, e: &mut Expr) {
        match e {
            // Lengths and messages are not arithmetic; nor is what is told to a user.
            Expr::Repeat(r) => return self.visit_expr_mut(&mut r.expr),
            Expr::Const(_) | Expr::Let(_) | Expr::Macro(_) => return,
            Expr::Call(c) if is_error(&c.func) => return,
            _ => {}
        }
        // Operands of a range of literals stay literals: `0..4` of an array's indices is a shape.
        visit_mut::visit_expr_mut(self, e);
        if !self.within_function {
            return;
        }
        let changed = match &*e {
            Expr::Binary(b) => self.binary(b),
            Expr::Lit(l) => match &l.lit {
                Lit::Int(n) => match n.base10_parse::<u128>() {
                    Ok(_) => self.number("constant", l.span(), l).map(
                        |number| verbatim!((if crate::mutant::at(#number) { #l + 1 } else { #l })),
                    ),
                    Err(_) => None,
                },
                Lit::Float(_) => self.number("constant", l.span(), l).map(
                    |number| verbatim!((if crate::mutant::at(#number) { #l + 1.0 } else { #l })),
                ),
                _ => None,
            },
            Expr::Range(r) => match (&r.start, &r.end) {
                (_, Some(end)) if !matches!(&**end, Expr::Lit(_)) => {
                    let (start, limits, end) = (r.start.clone(), r.limits, end.clone());
                    self.number("bound", end.span(), &end).map(|number| {
                        verbatim!(#start #limits (if crate::mutant::at(#number) { #end - 1 } else { #end }))
                    })
                }
                _ => None,
            },
            Expr::Index(i) if !matches!(&*i.index, Expr::Range(_) | Expr::Lit(_)) => {
                let (of, at) = (&i.expr, &i.index);
                self.number("index", at.span(), at).map(
                    |number| verbatim!(#of[if crate::mutant::at(#number) { #at + 1 } else { #at }]),
                )
            }
            _ => None,
        };
        if let Some(changed) = changed {
            *e = changed;
        }
    }
}

/// `Error::invalid(…)` and its like: words.
fn is_error(function: &Expr) -> bool {
    let text = quote!(#function).to_string();
    text.starts_with("Error ::") || text.starts_with("crate :: Error") || text == "Err"
}
