//! Which nodes are linked: held-out edges against pairs that are none.

use std::path::Path;
use std::sync::Arc;

use super::{Inference, add_drawing};
use crate::budget::Demand;
use crate::graph::batch::{Features, GraphBatch};
use crate::graph::draw;
use crate::graph::memory::{Extent, demand};
use crate::graph::network::GraphNetwork;
use crate::graph::sample::{negative_pairs, roc_auc};
use crate::graph::spec::GraphSpec;
use crate::graph::structure::Graph;
use crate::layer::LayerSpec;
use crate::rng::Key;
use crate::train::{Content, Example, Figure, Findings, MeasuredOn, Metrics, Task, TrainSpec};
use crate::{Batch, Error, Loss, Result, Target};

/// Graphs up to this size are drawn as training goes.
const DRAWN: usize = 400;

/// Link prediction. Of the undirected edges 85 % are seen and trained on, 5 % validate and 10 %
/// test; every step draws as many pairs without an edge.
pub struct LinkTask {
    model: GraphNetwork,
    batch: GraphBatch<f32>,
    /// All edges: what a negative must not be.
    whole: Arc<Graph>,
    train: Vec<[u32; 2]>,
    /// Validation and test: pairs, and which of them are edges.
    held_out: [(Vec<[u32; 2]>, Vec<bool>); 2],
    key: Key,
    pairs: Vec<[u32; 2]>,
    inference: Inference,
}

impl LinkTask {
    /// From a graph with an edge in both directions for every link.
    pub fn new(spec: &GraphSpec, batch: GraphBatch<f32>, seed: u64) -> Result<Self> {
        if spec.layers.last() != Some(&LayerSpec::pair_dot()) {
            return Err(Error::invalid(
                "the network's last layer",
                "another",
                "pair_dot",
            ));
        }
        if spec.edge_weight || spec.edge_features > 0 {
            return Err(Error::invalid(
                "edge weights or features",
                "some",
                "none, to predict links",
            ));
        }
        let key = Key::new(seed).purpose("links");
        let whole = batch.graph().clone();
        let mut links: Vec<[u32; 2]> = whole
            .sources()
            .iter()
            .zip(whole.targets())
            .filter(|(s, t)| s < t)
            .map(|(&s, &t)| [s, t])
            .collect();
        if links.len() < 20 {
            return Err(Error::invalid(
                "links",
                links.len(),
                "at least 20, to hold some out",
            ));
        }
        key.stream().shuffle(&mut links);
        let (validation, test) = (links.len() / 20, links.len() / 10);
        let train = links.split_off(validation + test);
        let held_out = [0..validation, validation..validation + test].map(|range| {
            let mut pairs = links[range.clone()].to_vec();
            let mut known = vec![true; pairs.len()];
            let of = key.index(1 + range.start as u64);
            negative_pairs(&whole, range.len(), of, &mut pairs);
            known.resize(pairs.len(), false);
            (pairs, known)
        });
        let [a, b] = [0, 1].map(|end| train.iter().map(|l| l[end]).collect::<Vec<_>>());
        let seen = Arc::new(Graph::undirected(whole.nodes(), &a, &b)?);
        let batch = match batch.features() {
            Features::Dense(width) => GraphBatch::dense(seen, *width, batch.values().to_vec())?,
            Features::Sparse(pattern) => {
                let rows = &pattern.by_row;
                let node_of: Vec<u32> = (0..rows.len())
                    .flat_map(|i| std::iter::repeat_n(i as u32, rows.degree(i)))
                    .collect();
                let width = batch.width();
                GraphBatch::sparse(seen, width, &node_of, &rows.neighbour, batch.values())?
            }
            Features::Ids(pattern) => {
                GraphBatch::ids(seen, batch.width(), &pattern.by_row.neighbour)?
            }
        };
        let batch = batch.with_pairs(train.clone())?;
        let model = GraphNetwork::new(spec)?;
        model.check(&batch)?;
        Ok(LinkTask {
            model,
            batch,
            whole,
            train,
            held_out,
            key,
            pairs: Vec::new(),
            inference: Inference::new(),
        })
    }

    /// The held-out test pairs, and which of them are links.
    pub(super) fn test_pairs(&self) -> (&[[u32; 2]], &[bool]) {
        (&self.held_out[1].0, &self.held_out[1].1)
    }

    /// The scores of pairs of nodes: the logits of being linked.
    pub(super) fn scores_of(&mut self, params: &[f32], pairs: &[[u32; 2]]) -> Result<Vec<f32>> {
        self.batch.set_pairs(pairs)?;
        let y = self.inference.output(&self.model, params, &self.batch);
        Ok(y.to_vec())
    }

    fn score(&mut self, params: &[f32], part: usize) -> Result<(f64, Option<f64>)> {
        let (pairs, known) = &self.held_out[part];
        self.batch.set_pairs(pairs)?;
        let y = self.inference.output(&self.model, params, &self.batch);
        let target = known.iter().map(|&k| f32::from(u8::from(k)));
        let loss = Loss::BceLogits.compute(y, &Target::values(target.collect()), None);
        Ok((f64::from(loss), roc_auc(y, known)))
    }
}

impl Task for LinkTask {
    type Model = GraphNetwork;

    fn model(&self) -> &GraphNetwork {
        &self.model
    }
    fn model_mut(&mut self) -> &mut GraphNetwork {
        &mut self.model
    }
    fn loss(&self) -> Loss {
        Loss::BceLogits
    }
    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let graph = self.batch.graph();
        let whole = Extent::whole(graph.nodes(), graph.edges());
        demand(&self.model, train.optimizer, Vec::new(), move |_| whole)
    }

    fn steps_per_epoch(&self) -> u64 {
        1
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        self.pairs.clear();
        self.pairs.extend_from_slice(&self.train);
        let key = self.key.purpose("negatives").step(step);
        negative_pairs(&self.whole, self.train.len(), key, &mut self.pairs);
        let example = example.get_or_insert_with(|| {
            let mut values = vec![1.0; 2 * self.train.len()];
            values[self.train.len()..].fill(0.0);
            Example {
                input: self.batch.clone(),
                target: Target::values(values),
            }
        });
        example.input.set_pairs(&self.pairs)
    }

    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        let (loss, auc) = self.score(params, 0)?;
        let mut metrics = vec![("validation_loss".to_string(), loss)];
        metrics.extend(auc.map(|auc| ("validation_auc".to_string(), auc)));
        let (_, auc) = self.score(params, 1)?;
        metrics.extend(auc.map(|auc| ("test_auc".to_string(), auc)));
        Ok(metrics)
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let (part, count) = match figure.split('_').next()? {
            "train" => ("training", 2 * self.train.len()),
            "validation" => ("validation", self.held_out[0].0.len()),
            "test" => ("test", self.held_out[1].0.len()),
            _ => return None,
        };
        Some(MeasuredOn::part(part, Some((count, "pairs"))))
    }

    fn best_by(&self) -> (&'static str, bool) {
        ("validation_auc", false)
    }

    fn view(&mut self, _: &[f32]) -> Result<Vec<Figure>> {
        // `evaluate` has just left the rows of these parameters.
        let nodes = self.whole.nodes();
        if nodes > DRAWN {
            return Ok(Vec::new());
        }
        let (rows, width) = self.inference.embedding(&self.model);
        let (places, all) = (draw::project(rows, width), vec![0; nodes]);
        let svg = draw::drawing(&places, Some(&self.whole), &all, &all, &[]);
        Ok(vec![Figure {
            title: "The graph".into(),
            caption: "nodes where training has put them: linked ones should point the same way"
                .into(),
            content: Content::Svg(svg),
        }])
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let mut findings = Findings::default();
        let summary = &mut findings.summary;
        if let (_, Some(auc)) = self.score(params, 1)? {
            summary.insert("test_auc".into(), auc.into());
        }
        summary.insert("nodes".into(), self.whole.nodes().into());
        summary.insert("links_seen".into(), self.train.len().into());
        let (pairs, known) = self.held_out[1].clone();
        summary.insert("links_tested".into(), (pairs.len() / 2).into());
        let scores = self.scores_of(params, &pairs)?;
        let (rows, width) = self.inference.embedding(&self.model);
        let all = vec![0; self.whole.nodes()];
        let places = draw::project(rows, width);
        let svg = draw::drawing(&places, None, &all, &all, &[]);
        let counted = |link: bool, said: bool| {
            let pairs = scores.iter().zip(&known);
            let those = pairs.filter(|&(&score, &known)| known == link && (score > 0.0) == said);
            those.count().to_string()
        };
        let row = |name: &str, link| vec![name.into(), counted(link, true), counted(link, false)];
        findings.figures.push(Figure {
            title: "Held-out pairs".into(),
            caption: "Links that training did not see, and as many pairs that are none.".into(),
            content: Content::Table {
                header: ["", "said to be linked", "said not to be"]
                    .map(String::from)
                    .to_vec(),
                rows: vec![row("links", true), row("no links", false)],
            },
        });
        let caption = "Rows whose product scores a pair, along their two principal directions: \
                       nodes that point the same way are likely linked.";
        let file = (run, "embedding.svg");
        add_drawing(&mut findings, file, "The nodes' embedding", caption, svg)?;
        Ok(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::data::karate_club;

    #[test]
    fn held_out_links_are_not_seen_and_negatives_are_no_links_and_drawn_from_the_seed() {
        let spec: GraphSpec = toml::from_str(
            "features = 34\nlayers = [{ kind = \"gcn\", out = 8 }, { kind = \"pair_dot\" }]",
        )
        .unwrap();
        let task = |seed| LinkTask::new(&spec, karate_club().unwrap().batch, seed).unwrap();
        let one = task(1);
        let edges = |graph: &Graph| -> std::collections::HashSet<[u32; 2]> {
            let ends = graph.sources().iter().zip(graph.targets());
            ends.map(|(&s, &t)| [s, t]).collect()
        };
        let (seen, all) = (edges(one.batch.graph()), edges(&one.whole));
        assert_eq!(seen.len(), 2 * one.train.len());
        for (pairs, known) in &one.held_out {
            assert_eq!(known.iter().filter(|&&k| k).count() * 2, known.len());
            for (&[a, b], &link) in pairs.iter().zip(known) {
                assert!(!seen.contains(&[a, b]) && !seen.contains(&[b, a]));
                assert_eq!(all.contains(&[a, b]), link);
            }
        }
        let draw = |task: &mut LinkTask, step| {
            let mut example = None;
            task.batch(step, &mut example).unwrap();
            task.pairs[task.train.len()..].to_vec()
        };
        let (mut one, mut same, mut other) = (one, task(1), task(2));
        let negatives = draw(&mut one, 3);
        assert!(negatives.iter().all(|pair| !all.contains(pair)));
        assert_eq!(negatives, draw(&mut same, 3));
        assert_ne!(negatives, draw(&mut same, 4));
        assert_ne!(negatives, draw(&mut other, 3));
    }
}
