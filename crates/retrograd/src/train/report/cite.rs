//! How to cite a run: this program, and the works that its model comes from.

use super::escape;
use crate::train::Experiment;

/// A word that stands in the experiment's `[model]` or `[data]`, or the family's name, and the work
/// to cite where it does.
const WORKS: [(&str, &str); 10] = [
    (
        "kan",
        "Z. Liu et al.: KAN: Kolmogorov–Arnold Networks. arXiv:2404.19756, 2024.",
    ),
    (
        "logic_ca",
        "F. Petersen, C. Borgelt, H. Kuehne, O. Deussen: Deep Differentiable Logic Gate Networks. \
         NeurIPS 2022.",
    ),
    (
        "logic_ca",
        "P. Miotti, E. Niklasson, E. Randazzo, A. Mordvintsev: Differentiable Logic Cellular \
         Automata. 2025.",
    ),
    (
        "gcn",
        "T. N. Kipf, M. Welling: Semi-Supervised Classification with Graph Convolutional Networks. \
         ICLR 2017.",
    ),
    (
        "gat",
        "P. Veličković et al.: Graph Attention Networks. ICLR 2018.",
    ),
    (
        "gatv2",
        "S. Brody, U. Alon, E. Yahav: How Attentive are Graph Attention Networks? ICLR 2022.",
    ),
    (
        "sage",
        "W. L. Hamilton, R. Ying, J. Leskovec: Inductive Representation Learning on Large Graphs. \
         NeurIPS 2017.",
    ),
    (
        "gin",
        "K. Xu, W. Hu, J. Leskovec, S. Jegelka: How Powerful are Graph Neural Networks? ICLR 2019.",
    ),
    (
        "noise2noise",
        "J. Lehtinen et al.: Noise2Noise: Learning Image Restoration without Clean Data. ICML 2018.",
    ),
    (
        "noise2void",
        "A. Krull, T.-O. Buchholz, F. Jug: Noise2Void: Learning Denoising from Single Noisy Images. \
         CVPR 2019.",
    ),
];

/// The works that an experiment's own words call for.
fn works(experiment: &Experiment) -> Vec<&'static str> {
    let mut words = Vec::new();
    for table in [&experiment.model, &experiment.data] {
        for value in table.values() {
            collect(value, &mut words);
        }
    }
    let used = WORKS.iter().filter(|(word, _)| words.contains(word));
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
