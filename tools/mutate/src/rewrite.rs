//! The changes, on syn's tree. An expression becomes one that asks `crate::mutant::at(N)`, so that every
//! mutant is one number away in the same build.
//!
//! | kind | right | changed |
//! |---|---|---|
//! | operator | a + b, a − b, a · b, a / b, a % b | a − b, a + b, a + b, a · b, a / b |
//! | edge | a < b, a ≤ b, a > b, a ≥ b | a ≤ b, a < b, a ≥ b, a > b |
//! | equality | a == b, a != b | the other |
//! | condition | a && b, a \|\| b | one side left out |
//! | branch | if a | if true, if false |
//! | sign | −a, !a | a |
//! | method | min, max, div_ceil, floor, abs, sqrt … | max, min, /, ceil, nothing … |
//! | tail | x.chunks(n) | without a last piece that is shorter |
//! | adding | a += b, a −= b | a = b |
//! | overwriting | \*a = b | \*a += b |
//! | bound | a..b | a..b − 1, a + 1..b |
//! | constant | a number n | n + 1, n − 1 |
//! | index | x\[i\] | x\[i + 1\] |
//! | swapped | f(a, b) | f(b, a) |
//! | skipped | a statement | nothing |
//!
//! Operands are evaluated once (`match (a, b) { … }`): written twice, nested expressions would double
//! with every level.
//!
//! Left alone: what the compiler evaluates (constants, array lengths, patterns), text and messages,
//! assertions, capacities, functions that report or draw, and code in macros but for `dispatch!`.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprMethodCall, Lit, Pat, Stmt, Token, UnOp, parse_quote,
};

use crate::words;

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
    pub function: String,
    pub line: usize,
    pub kind: &'static str,
    pub was: String,
    pub becomes: String,
    /// Which of several equal changes of a function.
    pub nth: usize,
}

impl Mutant {
    /// Its name, which survives changes elsewhere.
    pub fn key(&self) -> String {
        format!(
            "{} {}: {} -> {} #{}",
            self.file, self.function, self.was, self.becomes, self.nth
        )
    }
}

/// Rewrites the functions of one file.
pub struct Rewriter<'a> {
    pub file: String,
    pub next: u32,
    pub made: Vec<Mutant>,
    /// Keys of those that are put in; all where it is not said.
    wanted: Option<&'a BTreeSet<String>>,
    seen: BTreeMap<(String, String, String), usize>,
    function: Vec<String>,
}

/// An expression's text, for people.
fn text(e: &dyn ToTokens) -> String {
    let text = quote!(#e).to_string();
    let mut text = text
        .replace(" . ", ".")
        .replace(" :: ", "::")
        .replace(" (", "(")
        .replace("( ", "(")
        .replace(" )", ")")
        .replace(" [", "[")
        .replace("[ ", "[")
        .replace(" ]", "]")
        .replace(" ,", ",")
        .replace("& ", "&");
    if text.chars().count() > 120 {
        text = text.chars().take(119).collect::<String>() + "…";
    }
    text
}

impl<'a> Rewriter<'a> {
    pub fn new(file: String, next: u32, wanted: Option<&'a BTreeSet<String>>) -> Self {
        Rewriter {
            file,
            next,
            made: Vec::new(),
            wanted,
            seen: BTreeMap::new(),
            function: Vec::new(),
        }
    }

    /// The next number, where it is wanted.
    fn number(&mut self, kind: &'static str, at: Span, was: &str, becomes: &str) -> Option<u32> {
        let function = self.function.join("::");
        let same = (function.clone(), was.to_string(), becomes.to_string());
        let nth = self.seen.entry(same).or_default();
        *nth += 1;
        let mutant = Mutant {
            number: self.next,
            file: self.file.clone(),
            function,
            line: at.start().line,
            kind,
            was: was.to_string(),
            becomes: becomes.to_string(),
            nth: *nth,
        };
        if self
            .wanted
            .is_some_and(|wanted| !wanted.contains(&mutant.key()))
        {
            return None;
        }
        self.next += 1;
        self.made.push(mutant);
        Some(self.next - 1)
    }

    fn binary(&mut self, was: &ExprBinary, e: &ExprBinary) -> Option<Expr> {
        let (kind, other): (&'static str, BinOp) = match e.op {
            BinOp::Add(_) => ("operator", parse_quote!(-)),
            BinOp::Sub(_) => ("operator", parse_quote!(+)),
            BinOp::Mul(_) => ("operator", parse_quote!(+)),
            BinOp::Div(_) => ("operator", parse_quote!(*)),
            BinOp::Rem(_) => ("operator", parse_quote!(/)),
            BinOp::Lt(_) => ("edge", parse_quote!(<=)),
            BinOp::Le(_) => ("edge", parse_quote!(<)),
            BinOp::Gt(_) => ("edge", parse_quote!(>=)),
            BinOp::Ge(_) => ("edge", parse_quote!(>)),
            BinOp::Eq(_) => ("equality", parse_quote!(!=)),
            BinOp::Ne(_) => ("equality", parse_quote!(==)),
            BinOp::And(_) | BinOp::Or(_) => return self.condition(was, e),
            _ => return None,
        };
        let changed = ExprBinary {
            op: other,
            ..was.clone()
        };
        let (op, left, right) = (&e.op, &e.left, &e.right);
        let number = self.number(kind, e.op.span(), &text(was), &text(&changed))?;
        Some(
            verbatim!((match (#left, #right) { (l, r) => if crate::mutant::at(#number) { l #other r } else { l #op r } })),
        )
    }

    /// One side of `a && b` or `a || b` left out.
    fn condition(&mut self, was: &ExprBinary, e: &ExprBinary) -> Option<Expr> {
        // `if let … && …` has no other form.
        if is_let(&was.left) || is_let(&was.right) {
            return None;
        }
        let and = matches!(e.op, BinOp::And(_));
        let (op, mut left, mut right) =
            (&e.op, e.left.to_token_stream(), e.right.to_token_stream());
        let whole = text(was);
        let without = |this: &mut Self, side: &TokenStream, other: &Expr| -> Option<TokenStream> {
            let number = this.number("condition", was.op.span(), &whole, &text(other))?;
            Some(match and {
                true => quote!((crate::mutant::at(#number) || #side)),
                false => quote!((!crate::mutant::at(#number) && #side)),
            })
        };
        if let Some(changed) = without(self, &left, &was.right) {
            left = changed;
        }
        if let Some(changed) = without(self, &right, &was.left) {
            right = changed;
        }
        Some(verbatim!((#left #op #right)))
    }

    fn constant(&mut self, l: &syn::ExprLit) -> Option<Expr> {
        let was = text(l);
        let mut changed = l.to_token_stream();
        let mut change = |this: &mut Self, other: TokenStream, becomes: String| {
            if let Some(number) = this.number("constant", l.span(), &was, &becomes) {
                changed = quote!((if crate::mutant::at(#number) { #other } else { #changed }));
            }
        };
        match &l.lit {
            Lit::Int(n) => {
                let n = n.base10_parse::<u64>().ok()?;
                change(self, quote!(#l + 1), format!("{}", n.wrapping_add(1)));
                if n > 0 {
                    change(self, quote!(#l - 1), format!("{}", n - 1));
                }
            }
            Lit::Float(_) => change(self, quote!(#l + 1.0), format!("{was} + 1.0")),
            _ => return None,
        }
        Some(Expr::Verbatim(changed))
    }

    fn range(&mut self, was: &syn::ExprRange, r: &syn::ExprRange) -> Option<Expr> {
        let whole = text(was);
        let (mut start, mut end) = (r.start.to_token_stream(), r.end.to_token_stream());
        let limits = &r.limits;
        let mut changed = false;
        if let Some(own) = was.end.as_deref().filter(|e| !matches!(e, Expr::Lit(_)))
            && let Some(number) =
                self.number("bound", own.span(), &whole, &format!("… {} - 1", text(own)))
        {
            end = quote!(crate::mutant::less(#number, #end));
            changed = true;
        }
        if let Some(own) = was.start.as_deref().filter(|e| !matches!(e, Expr::Lit(_)))
            && let Some(number) =
                self.number("bound", own.span(), &whole, &format!("{} + 1 …", text(own)))
        {
            start = quote!(crate::mutant::more(#number, #start));
            changed = true;
        }
        changed.then(|| verbatim!(#start #limits #end))
    }

    fn method(&mut self, was: &ExprMethodCall, m: &ExprMethodCall) -> Option<Expr> {
        let name = m.method.to_string();
        let (own, of) = (&m.method, &m.receiver);
        let receiver = text(&was.receiver);
        let whole = text(was);
        let at = m.method.span();
        let other = |w: &str| syn::Ident::new(w, Span::call_site());
        match (name.as_str(), m.args.len()) {
            ("min" | "max", 1) => {
                let to = other(if name == "min" { "max" } else { "min" });
                let arg = &m.args[0];
                let becomes = format!("{receiver}.{to}({})", text(&was.args[0]));
                let number = self.number("method", at, &whole, &becomes)?;
                Some(
                    verbatim!((match (#of, #arg) { (l, r) => if crate::mutant::at(#number) { l.#to(r) } else { l.#own(r) } })),
                )
            }
            ("div_ceil", 1) => {
                let arg = &m.args[0];
                let becomes = format!("{receiver} / {}", text(&was.args[0]));
                let number = self.number("method", at, &whole, &becomes)?;
                Some(
                    verbatim!((match (#of, #arg) { (l, r) => if crate::mutant::at(#number) { l / r } else { l.div_ceil(r) } })),
                )
            }
            ("floor" | "ceil" | "round", 0) => {
                let to = other(if name == "floor" { "ceil" } else { "floor" });
                let number = self.number("method", at, &whole, &format!("{receiver}.{to}()"))?;
                Some(
                    verbatim!((match #of { l => if crate::mutant::at(#number) { l.#to() } else { l.#own() } })),
                )
            }
            ("abs" | "sqrt" | "recip" | "exp" | "ln" | "square" | "tanh", 0) => {
                let number = self.number("method", at, &whole, &receiver)?;
                Some(
                    verbatim!((match #of { l => if crate::mutant::at(#number) { l } else { l.#own() } })),
                )
            }
            ("chunks" | "chunks_mut", 1) if is_plain(&was.receiver) && is_plain(&was.args[0]) => {
                let n = &m.args[0];
                let number =
                    self.number("tail", at, &whole, &format!("{whole} without the tail"))?;
                Some(verbatim!(#of[..crate::mutant::whole(#number, #of.len(), #n)].#own(#n)))
            }
            _ => None,
        }
    }

    /// Two neighbouring arguments of one form exchanged.
    fn swapped(&mut self, was: &Expr, e: &Expr) -> Option<Expr> {
        let (args, whole) = match was {
            Expr::Call(c) => (&c.args, text(was)),
            Expr::MethodCall(m) if is_plain(&m.receiver) => (&m.args, text(was)),
            _ => return None,
        };
        if args.len() < 2 || !args.iter().all(is_plain) || whole.ends_with('…') {
            return None;
        }
        let mut changed = e.clone();
        for i in 0..args.len() - 1 {
            let (a, b) = (&args[i], &args[i + 1]);
            let same = std::mem::discriminant(a) == std::mem::discriminant(b);
            if !same || text(a) == text(b) {
                continue;
            }
            let mut other = was.clone();
            match &mut other {
                Expr::Call(c) => (c.args[i], c.args[i + 1]) = (b.clone(), a.clone()),
                Expr::MethodCall(m) => (m.args[i], m.args[i + 1]) = (b.clone(), a.clone()),
                _ => return None,
            }
            if let Some(number) = self.number("swapped", a.span(), &whole, &text(&other)) {
                changed = verbatim!((if crate::mutant::at(#number) { #other } else { #changed }));
            }
        }
        Some(changed)
    }

    fn enter(&mut self, name: &str, attributes: &[syn::Attribute], within: impl FnOnce(&mut Self)) {
        if words::is_test(attributes) || words::is_elsewhere(attributes) || words::says(name) {
            return;
        }
        self.function.push(name.to_string());
        within(self);
        self.function.pop();
    }

    /// A statement as one that may be skipped, or that overwrites or adds the other way round.
    fn statement(&mut self, was: &Expr, e: &mut Expr) {
        let whole = text(was);
        let at = was.span();
        match was {
            Expr::Binary(b) if is_assigning(&b.op) => {
                let Expr::Binary(own) = &*e else { return };
                let (op, left, right) = (&own.op, &own.left, &own.right);
                if matches!(b.op, BinOp::AddAssign(_) | BinOp::SubAssign(_)) {
                    let becomes = format!("{} = {}", text(&b.left), text(&b.right));
                    if let Some(number) = self.number("adding", at, &whole, &becomes) {
                        *e = verbatim!(match #right { r => if crate::mutant::at(#number) { #left = r; } else { #left #op r; } });
                    }
                }
            }
            Expr::Assign(a) => {
                let Expr::Assign(own) = &*e else { return };
                let (left, right) = (&own.left, &own.right);
                if matches!(&*a.left, Expr::Unary(_) | Expr::Index(_)) {
                    let becomes = format!("{} += {}", text(&a.left), text(&a.right));
                    if let Some(number) = self.number("overwriting", at, &whole, &becomes) {
                        *e = verbatim!(match #right { r => if crate::mutant::at(#number) { #left += r; } else { #left = r; } });
                    }
                }
            }
            Expr::MethodCall(m) if words::changes_nothing(&m.method.to_string()) => return,
            Expr::MethodCall(_) | Expr::Call(_) => {}
            _ => return,
        }
        if let Some(number) = self.number("skipped", at, &whole, "nothing") {
            *e = verbatim!(if !crate::mutant::at(#number) { #e; });
        }
    }
}

fn is_assigning(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_)
    )
}

fn is_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) if matches!(b.op, BinOp::And(_)) => is_let(&b.left) || is_let(&b.right),
        Expr::Paren(p) => is_let(&p.expr),
        _ => false,
    }
}

/// A name, a field of one, or a reference to it: it can be written twice.
fn is_plain(e: &Expr) -> bool {
    match e {
        Expr::Path(_) => true,
        Expr::Field(f) => is_plain(&f.base),
        Expr::Reference(r) => is_plain(&r.expr),
        Expr::Paren(p) => is_plain(&p.expr),
        Expr::Unary(u) => matches!(u.op, UnOp::Deref(_)) && is_plain(&u.expr),
        _ => false,
    }
}

/// `level, simd => expression`.
struct Dispatch(Expr, Pat, Expr);

impl Parse for Dispatch {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let level = input.parse()?;
        input.parse::<Token![,]>()?;
        let simd = Pat::parse_single(input)?;
        input.parse::<Token![=>]>()?;
        let body = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        Ok(Dispatch(level, simd, body))
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_item_fn_mut(&mut self, f: &mut syn::ItemFn) {
        if f.sig.constness.is_none() {
            self.enter(&f.sig.ident.to_string(), &f.attrs, |this| {
                this.visit_block_mut(&mut f.block)
            });
        }
    }

    fn visit_impl_item_fn_mut(&mut self, f: &mut syn::ImplItemFn) {
        if f.sig.constness.is_none() {
            self.enter(&f.sig.ident.to_string(), &f.attrs, |this| {
                this.visit_block_mut(&mut f.block)
            });
        }
    }

    fn visit_trait_item_fn_mut(&mut self, f: &mut syn::TraitItemFn) {
        if let Some(block) = &mut f.default {
            self.enter(&f.sig.ident.to_string(), &f.attrs, |this| {
                this.visit_block_mut(block)
            });
        }
    }

    fn visit_item_mod_mut(&mut self, m: &mut syn::ItemMod) {
        if !words::is_test(&m.attrs) && !words::is_elsewhere(&m.attrs) {
            visit_mut::visit_item_mod_mut(self, m);
        }
    }

    fn visit_item_impl_mut(&mut self, i: &mut syn::ItemImpl) {
        if words::is_test(&i.attrs) || words::is_elsewhere(&i.attrs) {
            return;
        }
        // `Dense` of `impl Layer<f32> for Dense`.
        let of = &i.self_ty;
        let name = text(&quote!(#of));
        let name = name
            .split(['<', ' '])
            .next()
            .unwrap_or_default()
            .to_string();
        self.function.push(name);
        visit_mut::visit_item_impl_mut(self, i);
        self.function.pop();
    }

    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}
    fn visit_attribute_mut(&mut self, _: &mut syn::Attribute) {}

    fn visit_macro_mut(&mut self, m: &mut syn::Macro) {
        if m.path
            .segments
            .last()
            .is_some_and(|s| s.ident == "dispatch")
            && let Ok(Dispatch(level, simd, mut body)) = m.parse_body()
        {
            self.visit_expr_mut(&mut body);
            m.tokens = quote!(#level, #simd => #body);
        }
    }

    fn visit_local_mut(&mut self, l: &mut syn::Local) {
        if !words::is_elsewhere(&l.attrs) {
            visit_mut::visit_local_mut(self, l);
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        for statement in &mut block.stmts {
            let was = match &*statement {
                Stmt::Expr(e, Some(_)) => Some(e.clone()),
                _ => None,
            };
            self.visit_stmt_mut(statement);
            if let (Stmt::Expr(e, _), Some(was)) = (statement, was) {
                self.statement(&was, e);
            }
        }
    }

    fn visit_expr_if_mut(&mut self, i: &mut syn::ExprIf) {
        let was = (*i.cond).clone();
        visit_mut::visit_expr_if_mut(self, i);
        if is_let(&was) || words::is_about_threads(&text(&was)) {
            return;
        }
        let (whole, at) = (format!("if {}", text(&was)), was.span());
        for (word, becomes) in [(true, "if true"), (false, "if false")] {
            if let Some(number) = self.number("branch", at, &whole, becomes) {
                let cond = &i.cond;
                *i.cond = match word {
                    true => verbatim!((crate::mutant::at(#number) || #cond)),
                    false => verbatim!((!crate::mutant::at(#number) && #cond)),
                };
            }
        }
    }

    fn visit_expr_mut(&mut self, e: &mut Expr) {
        match e {
            // Lengths and messages are not arithmetic; nor is what is told to a user.
            Expr::Repeat(r) => return self.visit_expr_mut(&mut r.expr),
            Expr::Const(_) => return,
            Expr::Call(c) if words::is_error(&text(&c.func)) => return,
            Expr::MethodCall(m) if words::changes_nothing(&m.method.to_string()) => {
                return self.visit_expr_mut(&mut m.receiver);
            }
            _ => {}
        }
        let was = e.clone();
        visit_mut::visit_expr_mut(self, e);
        if self.function.is_empty() || words::is_about_threads(&text(&was)) {
            return;
        }
        let changed = match (&was, &*e) {
            (Expr::Binary(was), Expr::Binary(b)) => self.binary(was, b),
            (Expr::Lit(_), Expr::Lit(l)) => self.constant(l),
            (Expr::Range(was), Expr::Range(r)) => self.range(was, r),
            (Expr::Index(was), Expr::Index(i))
                if !matches!(&*was.index, Expr::Range(_) | Expr::Lit(_)) =>
            {
                let (of, at) = (&i.expr, &i.index);
                let becomes = format!("{}[{} + 1]", text(&was.expr), text(&was.index));
                self.number("index", at.span(), &text(was), &becomes)
                    .map(|number| verbatim!(#of[crate::mutant::more(#number, #at)]))
            }
            (Expr::Unary(was), Expr::Unary(u))
                if !matches!(u.op, UnOp::Deref(_)) && !matches!(&*was.expr, Expr::Lit(_)) =>
            {
                let (op, of) = (&u.op, &u.expr);
                self.number("sign", u.op.span(), &text(was), &text(&was.expr))
                    .map(|number| verbatim!((match #of { l => if crate::mutant::at(#number) { l } else { #op l } })))
            }
            (Expr::MethodCall(w), Expr::MethodCall(m)) => match self.method(w, m) {
                Some(changed) => Some(changed),
                None => self.swapped(&was, e),
            },
            (Expr::Call(_), Expr::Call(_)) => self.swapped(&was, e),
            _ => None,
        };
        if let Some(changed) = changed {
            *e = changed;
        }
    }
}
