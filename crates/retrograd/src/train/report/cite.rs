//! How to cite a run: this program, and the works that its model comes from.

use super::escape;
use crate::FAMILIES;
use crate::train::Experiment;

/// The works that an experiment's own words call for.
fn works(experiment: &Experiment) -> Vec<&'static str> {
    let mut words = Vec::new();
    for table in [&experiment.model, &experiment.data] {
        for value in table.values() {
            collect(value, &mut words);
        }
    }
    let works = FAMILIES.iter().flat_map(|f| f.works);
    let used = works.filter(|(word, _)| words.contains(word));
    used.map(|&(_, work)| work).collect()
}

fn collect<'a>(value: &'a toml::Value, words: &mut Vec<&'a str>) {
    match value {
        toml::Value::String(word) => words.push(word),
        toml::Value::Array(values) => values.iter().for_each(|v| collect(v, words)),
        toml::Value::Table(table) => table.values().for_each(|v| collect(v, words)),
        _ => {}
    }
}

/// BibTeX of this program, and the works.
pub(super) fn section(experiment: &Experiment) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut html = format!(
        "<pre>@software{{retrograd,\n  title   = {{retrograd: verified training of small networks}},\n  \
         author  = {{{{The retrograd authors}}}},\n  version = {{{version}}}\n}}</pre>\n"
    );
    let works = works(experiment);
    if !works.is_empty() {
        html.push_str("<ul class=\"references\">\n");
        for work in works {
            html.push_str(&format!("<li>{}</li>\n", escape(work)));
        }
        html.push_str("</ul>\n");
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_cites_what_it_uses() {
        let text = "name = \"a\"\n[model]\nfamily = \"graph\"\nlayers = [{ kind = \"gcn\", out = 2 }]\n\
                    [train]\nepochs = 1\noptimizer = { kind = \"sgd\", lr = 0.1 }\n";
        let experiment = Experiment::parse(text, "a.toml").unwrap();
        assert_eq!(works(&experiment).len(), 1);
        assert!(section(&experiment).contains("Kipf"));
        let other = text.replace("gcn", "dense");
        let experiment = Experiment::parse(&other, "a.toml").unwrap();
        assert!(!section(&experiment).contains("<ul"));
    }
}
