//! What was made, as `mutants.json` keeps it, and what is known to change nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// A mutant of the copy.
#[derive(Clone, Debug)]
pub struct Made {
    pub number: u32,
    pub file: String,
    pub line: u64,
    pub kind: String,
    /// File, function and change: a name that survives changes elsewhere.
    pub key: String,
}

/// The mutants of a copy.
pub fn made(folder: &Path) -> Result<Vec<Made>, String> {
    let path = folder.join("mutants.json");
    let text = fs::read_to_string(&path)
        .map_err(|e| format!("{}: {e}; `mutate make` first", path.display()))?;
    let list: Vec<Value> =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let word = |m: &Value, key: &str| m[key].as_str().unwrap_or_default().to_string();
    Ok((list.iter())
        .map(|m| Made {
            number: m["number"].as_u64().unwrap_or(0) as u32,
            file: word(m, "file"),
            line: m["line"].as_u64().unwrap_or(0),
            kind: word(m, "kind"),
            key: word(m, "key"),
        })
        .collect())
}

/// How many changes each file has, drawn or not.
pub fn counts(folder: &Path) -> Result<BTreeMap<String, usize>, String> {
    let path = folder.join("counts.json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reasons of those that compute the same, by key: `equivalent.toml` beside this crate.
pub fn equivalent() -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = include_str!("../equivalent.toml")
        .parse()
        .map_err(|e| format!("equivalent.toml: {e}"))?;
    let mut found = BTreeMap::new();
    for entry in table
        .get("equivalent")
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
    {
        let reason = entry
            .get("reason")
            .and_then(toml::Value::as_str)
            .unwrap_or_default();
        let keys = entry.get("mutants").and_then(toml::Value::as_array);
        let keys = keys.ok_or("equivalent.toml: an entry without `mutants`")?;
        if reason.is_empty() {
            return Err(format!("equivalent.toml: {keys:?} without a reason"));
        }
        for key in keys {
            let key = key
                .as_str()
                .ok_or(format!("equivalent.toml: got {key}, needs a string"))?;
            found.insert(key.to_string(), reason.to_string());
        }
    }
    Ok(found)
}

/// What became of each, by key: its verdict and the check that gave it.
pub fn verdicts(folder: &Path) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(folder.join("verdicts.txt")).unwrap_or_default();
    (text.lines())
        .filter_map(|line| {
            let mut words = line.splitn(3, '\t');
            let (verdict, by, key) = (words.next()?, words.next()?, words.next()?);
            Some((key.to_string(), (verdict.to_string(), by.to_string())))
        })
        .collect()
}
