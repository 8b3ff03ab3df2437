//! "Did you mean": the known name nearest to a mistyped one.

/// The known name that a mistyped one most likely meant: within a third of its length in edits
/// (insert, delete, replace, swap neighbours), at least one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (edits(word, name), name))
        .filter(|&(d, _)| d <= limit)
        .min_by_key(|&(d, _)| d)
        .map(|(_, name)| name)
}

/// `; did you mean "NAME"?`, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(name) if name != word => format!("; did you mean {name:?}?"),
        _ => String::new(),
    }
}

/// Adds the suggestion to serde's own messages, "unknown field `lrr`, expected one of `lr`, …":
/// every description that is read through serde gets it without lists of its own.
pub fn explain(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match names.next() {
        Some(word) if unknown => format!("{message}{}", did_you_mean(word, names)),
        _ => message.to_string(),
    }
}

/// The number of edits between two words (optimal string alignment), without regard to case.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["epochs", "batch", "seed"];
        assert_eq!(nearest("epcohs", known), Some("epochs"));
        assert_eq!(nearest("Batches", known), Some("batch"));
        assert_eq!(nearest("momentum", known), None);
        assert_eq!(did_you_mean("sed", known), "; did you mean \"seed\"?");
    }

    #[test]
    fn serde_messages_get_a_suggestion() {
        let message = "unknown field `lrr`, expected one of `lr`, `betas`";
        assert!(explain(message).ends_with("; did you mean \"lr\"?"));
        assert_eq!(explain("invalid type"), "invalid type");
    }
}
