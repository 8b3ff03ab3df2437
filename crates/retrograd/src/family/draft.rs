//! Experiment files for a user's own data: what `retrograd init` decides and writes.

use std::path::{Path, PathBuf};

use crate::data::prepare::TaskKind;
use crate::error::plain;
use crate::train::Experiment;
use crate::{Error, FAMILIES, Result};

/// Looks at a user's data and drafts an experiment; `None` where it is another family's.
pub type MakeDraft = fn(&InitOptions, &Place) -> Result<Option<Draft>>;

/// A user's data, and what was said about it.
#[derive(Clone, Debug, Default)]
pub struct InitOptions {
    /// A table, a folder of images, a graph, or a folder of graphs.
    pub data: PathBuf,
    /// Tables: the column to predict.
    pub target: Option<String>,
    /// Tables: what the column is, if not what its values suggest.
    pub task: Option<TaskKind>,
    /// Tables: a network of KAN layers.
    pub kan: bool,
    /// Images: so many by so many pixels become one.
    pub bin: Option<usize>,
    /// Graphs: a row of numbers per node.
    pub features: Option<PathBuf>,
    /// Graphs: a class per node.
    pub labels: Option<PathBuf>,
    /// Graphs: predict which nodes are linked.
    pub links: bool,
    /// Graphs: edges go one way.
    pub directed: bool,
}

/// The draft of the first family that takes the data.
pub fn draft(options: &InitOptions, place: &Place) -> Result<Draft> {
    for make in FAMILIES.iter().filter_map(|f| f.draft) {
        if let Some(draft) = make(options, place)? {
            return Ok(draft);
        }
    }
    Err(Error::refused(
        "init",
        format!("{} is nothing to learn from", options.data.display()),
    ))
}

/// An experiment file, before it is written.
pub struct Draft {
    /// Its text.
    pub text: String,
    /// What was found in the data and decided: a word and a sentence each.
    pub findings: Vec<(&'static str, String)>,
    /// What the trained model is used on, as the arguments of `retrograd run` after the run.
    pub inputs: String,
}

/// Where a draft goes, and what its paths are relative to.
pub struct Place {
    /// The experiment's name.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Its folder, as the file system knows it.
    folder: PathBuf,
}

impl Place {
    /// Beside the current folder's other files, or where `out` says.
    pub fn new(data: &Path, out: Option<&Path>) -> Result<Self> {
        let data = match data == Path::new("-") {
            true => PathBuf::from("table.csv"),
            false => real(data, "cannot be read")?,
        };
        let stem = if data.is_dir() {
            data.file_name()
        } else {
            data.file_stem()
        };
        let file = match out {
            Some(out) if out.extension().is_some_and(|e| e == "toml") => out.to_path_buf(),
            Some(out) => {
                let needed = "a file that ends in .toml";
                return Err(Error::invalid("--out", out.display(), needed));
            }
            None => {
                let stem = stem.unwrap_or_default().to_string_lossy();
                PathBuf::from(format!("{}.toml", simple(&stem)))
            }
        };
        let parent = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = real(parent, "there is no such folder")?;
        let name = simple(&file.file_stem().unwrap_or_default().to_string_lossy());
        Ok(Place { name, file, folder })
    }

    /// A path as the file will name it: relative where the data is near, absolute elsewhere.
    pub fn relative(&self, path: &Path) -> Result<String> {
        if path == Path::new("-") {
            // Standard input, for training, too.
            return Ok("-".into());
        }
        let path = real(path, "cannot be read")?;
        let shared = path
            .components()
            .zip(self.folder.components())
            .take_while(|(a, b)| a == b)
            .count();
        let up = self.folder.components().count() - shared;
        let near = if up <= 2 {
            let down = path.components().skip(shared);
            let ups = std::iter::repeat_n(std::path::Component::ParentDir, up);
            let near: PathBuf = ups.chain(down).collect();
            if near.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                near
            }
        } else {
            path.clone()
        };
        match near.to_str() {
            Some(text) => Ok(text.to_string()),
            None => Err(Error::refused(path.display(), "the name is not UTF-8 text")),
        }
    }

    /// The experiment that a text describes, as it will be read from the file.
    pub fn experiment(&self, text: &str) -> Result<Experiment> {
        let mut experiment = Experiment::parse(text, &self.file)?;
        experiment.folder = Some(self.folder.clone());
        Ok(experiment)
    }
}

/// A path as the file system knows it, or the problem with it.
fn real(path: &Path, problem: &str) -> Result<PathBuf> {
    let found = path.canonicalize();
    found.map_err(|e| Error::refused(path.display(), format!("{problem}: {e}")))
}

/// A text as TOML writes it, on one line: keys can't have more.
pub(crate) fn quoted(text: &str) -> String {
    if !text.contains(char::is_control) {
        return toml::Value::String(text.to_string()).to_string();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A user's text within a comment, which it must not end: control characters are none of TOML's.
pub(crate) fn remark(text: &str) -> String {
    plain(text).replace('\n', " ")
}

/// A list of texts as TOML writes it.
pub(crate) fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(quoted).collect();
    format!("[{}]", texts.join(", "))
}

/// A name for a folder and a command line: what isn't a letter or a digit becomes a dash.
fn simple(name: &str) -> String {
    let dashed: String = name
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    match dashed.trim_matches(['-', '.']) {
        "" => "experiment".to_string(),
        name => name.to_string(),
    }
}

/// 12345 as 12,345.
pub(crate) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {what}{ending}", thousands(n))
}

/// Some names, the first ones of many.
pub(crate) fn some<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 12;
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_simple_and_numbers_readable() {
        assert_eq!(simple("My data (v2)"), "My-data--v2");
        assert_eq!(simple("..."), "experiment");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(counted(1, "row"), "1 row");
    }

    #[test]
    fn near_paths_are_relative_and_far_ones_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c/d")).unwrap();
        std::fs::write(root.join("a/t.csv"), "").unwrap();
        let place = |at: &str| {
            let out = root.join(at).join("t.toml");
            Place::new(&root.join("a/t.csv"), Some(&out)).unwrap()
        };
        let relative = |at: &str| place(at).relative(&root.join("a/t.csv")).unwrap();
        assert_eq!(relative("a"), "t.csv");
        assert_eq!(relative("a/b/c"), "../../t.csv");
        let far = root.join("a/t.csv").display().to_string();
        assert_eq!(relative("a/b/c/d"), far);
    }
}
