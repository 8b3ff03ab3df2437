//! The words of a WGSL file, with where they are: enough of a lexer to change one of them.

use std::ops::Range;

/// A word, a number, an operator or a bracket. A type with its parameters, `vec4<f32>`, is one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gpu) struct Token {
    pub range: Range<usize>,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gpu) enum Kind {
    Name,
    Type,
    Number,
    Sign,
}

/// Longer ones first.
const SIGNS: &[&str] = &[
    "<<=", ">>=", "->", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "++", "--",
];

/// Names after which `<` opens a list of types.
const GENERIC: &[&str] = &["vec2", "vec3", "vec4", "array", "bitcast", "ptr", "var"];

/// A function of a file: its name and its body, braces included.
#[derive(Clone, Debug)]
pub(in crate::gpu) struct Function {
    pub name: String,
    pub body: Range<usize>,
}

/// All tokens of a text. Comments are none.
pub(in crate::gpu) fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut found: Vec<Token> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let first = bytes[at];
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (len, kind) = if first.is_ascii_alphabetic() || first == b'_' {
            let len = length(rest, |c| c.is_ascii_alphanumeric() || c == b'_');
            match GENERIC.contains(&&rest[..len]) && rest[len..].starts_with('<') {
                true => (len + template(&rest[len..]), Kind::Type),
                false => (len, Kind::Name),
            }
        } else if first.is_ascii_digit() {
            (number(rest), Kind::Number)
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            (sign.map_or(1, |sign| sign.len()), Kind::Sign)
        };
        let range = at..at + len;
        found.push(Token { range, kind });
        at += len;
    }
    found
}

fn length(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|&c| belongs(c)).count()
}

/// `1e-6`, `0x7f800000u`, `64u`, `0.5`.
fn number(text: &str) -> usize {
    let len = length(text, |c| c.is_ascii_alphanumeric() || c == b'.');
    let has_exponent = text[..len].ends_with('e') && !text.starts_with("0x");
    match has_exponent && text[len..].starts_with(['-', '+']) {
        true => len + 1 + length(&text[len + 1..], |c| c.is_ascii_alphanumeric()),
        false => len,
    }
}

/// The length of `<...>`.
fn template(text: &str) -> usize {
    let mut depth = 0;
    for (i, c) in text.bytes().enumerate() {
        match c {
            b'<' => depth += 1,
            b'>' if depth == 1 => return i + 1,
            b'>' => depth -= 1,
            _ => {}
        }
    }
    1
}

/// The token at which the bracket that `open` is closes.
pub(in crate::gpu) fn closing(text: &str, tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match &text[token.range.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// The functions of a file.
pub(in crate::gpu) fn functions(text: &str, tokens: &[Token]) -> Vec<Function> {
    let word = |i: usize| tokens.get(i).map_or("", |t| &text[t.range.clone()]);
    let mut found = Vec::new();
    for i in 0..tokens.len() {
        if word(i) != "fn" {
            continue;
        }
        let body = closing(text, tokens, i + 2).and_then(|end| {
            let open = (end..tokens.len()).find(|&j| word(j) == "{")?;
            let close = closing(text, tokens, open)?;
            Some(tokens[open].range.start..tokens[close].range.end)
        });
        if let Some(body) = body {
            let name = word(i + 1).to_string();
            found.push(Function { name, body });
        }
    }
    found
}

/// Whether a value ends with this token, so that what follows is an operator between two.
pub(in crate::gpu) fn ends_value(text: &str, token: &Token) -> bool {
    match token.kind {
        Kind::Number | Kind::Name => !matches!(
            &text[token.range.clone()],
            "return" | "case" | "in" | "if" | "while"
        ),
        Kind::Type => false,
        Kind::Sign => matches!(&text[token.range.clone()], ")" | "]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_types_and_signs_are_told_apart() {
        let text = "let a = vec4<f32>(b[1u] <= 1e-6); // c\nx += array<vec4<f32>, 4>()";
        let words: Vec<&str> = (tokens(text).iter())
            .map(|t| &text[t.range.clone()])
            .collect();
        assert_eq!(
            words,
            [
                "let",
                "a",
                "=",
                "vec4<f32>",
                "(",
                "b",
                "[",
                "1u",
                "]",
                "<=",
                "1e-6",
                ")",
                ";",
                "x",
                "+=",
                "array<vec4<f32>, 4>",
                "(",
                ")"
            ]
        );
    }

    #[test]
    fn a_function_has_its_body() {
        let text = "fn f(a: u32) -> u32 { if (a > 1u) { return 2u; } return a; }\nfn g() {}";
        let found = functions(text, &tokens(text));
        let bodies: Vec<&str> = found.iter().map(|f| &text[f.body.clone()]).collect();
        assert_eq!(found[0].name, "f");
        assert_eq!(bodies[0], "{ if (a > 1u) { return 2u; } return a; }");
        assert_eq!(bodies[1], "{}");
    }
}
