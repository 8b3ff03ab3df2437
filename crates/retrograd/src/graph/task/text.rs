//! Masked characters: sentences from a small grammar become graphs, some characters are hidden,
//! and the network says what they were.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::{Inference, add_drawing};
use crate::budget::{self, Demand};
use crate::data::metrics::predicted_class;
use crate::graph::batch::GraphBatch;
use crate::graph::draw;
use crate::graph::memory::{Extent, demand};
use crate::graph::network::GraphNetwork;
use crate::graph::spec::GraphSpec;
use crate::graph::structure::Graph;
use crate::graph::transform::text_graph;
use crate::layer::embedding::EmbeddingSpec;
use crate::rng::{Key, Stream};
use crate::train::{
    Content, Example, Figure, Findings, MeasuredOn, Metrics, Specimen, Task, TrainSpec,
};
use crate::{Error, Loss, Model, Result, Target};

/// The characters that occur; the next id is the mask.
pub const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz .";

const ARTICLES: [&str; 3] = ["the", "a", "every"];
const ADJECTIVES: [&str; 8] = [
    "small", "old", "bright", "quiet", "green", "hungry", "clever", "lonely",
];
const NOUNS: [&str; 10] = [
    "fox", "river", "teacher", "garden", "boat", "mountain", "child", "window", "horse", "lantern",
];
const VERBS: [&str; 8] = [
    "sees", "follows", "paints", "carries", "forgets", "answers", "guards", "warms",
];

/// Restores masked characters.
pub struct TextTask {
    model: GraphNetwork,
    /// The topology that every sample has, and a batch's, which is the union.
    one: Arc<Graph>,
    graph: Arc<Graph>,
    characters: usize,
    samples: usize,
    batch: usize,
    masked: f64,
    /// How many lengths of skip edges there are.
    skips: usize,
    key: Key,
    validation: Vec<(GraphBatch<f32>, Target<f32>)>,
    draft: Draft,
    inference: Inference,
}

/// A sample's text in the making, and what is drawn of it, kept from batch to batch.
#[derive(Default)]
struct Draft {
    text: String,
    ids: Vec<u32>,
    truth: Vec<u32>,
    weights: Vec<f32>,
}

/// A text of at least that length.
fn write_sentences(stream: &mut Stream, length: usize, text: &mut String) {
    text.clear();
    // The longest sentence has 46 characters.
    text.reserve(length + 46);
    while text.len() < length {
        let words: [&[&str]; 6] = [&ARTICLES, &ADJECTIVES, &NOUNS, &VERBS, &ARTICLES, &NOUNS];
        for (place, words) in words.iter().enumerate() {
            text.push_str(words[stream.below(words.len())]);
            text.push_str(if place == 5 { ". " } else { " " });
        }
    }
}

/// A character's place in the alphabet; that of the mask where it has none.
pub(super) fn letter(c: char) -> u32 {
    let place = ALPHABET.chars().position(|p| p == c);
    place.unwrap_or(ALPHABET.len()) as u32
}

fn new_batch(graph: &Arc<Graph>, draft: &Draft) -> Result<(GraphBatch<f32>, Target<f32>)> {
    let batch = GraphBatch::ids(graph.clone(), ALPHABET.len() + 1, &draft.ids)?;
    let target = Target::classes(draft.truth.clone()).weighted(draft.weights.clone());
    Ok((batch, target))
}

/// The demand of training: batch, characters and samples could be smaller. Every character has an
/// edge to either side, and two for every skip; every sample is kept for validation.
fn text_demand(
    model: &GraphNetwork,
    train: &TrainSpec,
    [characters, samples, batch]: [usize; 3],
    skips: usize,
) -> Demand<'static> {
    let sizes = [
        ("train.batch", batch),
        ("data.characters", characters),
        ("data.samples", samples),
    ];
    let sizes = sizes.map(|(name, n)| (name.to_string(), n as u64)).to_vec();
    demand(model, train.optimizer, sizes, move |values| {
        let [batch, characters, samples] = [0, 1, 2].map(|i| u128::from(values[i]));
        let nodes = batch.saturating_mul(characters);
        let edges = nodes.saturating_mul(2 + 2 * skips as u128);
        Extent {
            nodes,
            edges,
            pairs: nodes.saturating_mul(characters),
            data: (40 * samples.saturating_mul(characters)).saturating_add(40 * edges),
        }
    })
}

impl TextTask {
    /// `[characters, samples, batch]`.
    pub fn new(
        spec: &GraphSpec,
        [characters, samples, batch]: [usize; 3],
        masked: f64,
        skips: &[usize],
        train: &TrainSpec,
    ) -> Result<Self> {
        let letters = ALPHABET.chars().count();
        if characters == 0 || samples == 0 || !(masked > 0.0 && masked < 1.0) {
            return Err(Error::invalid(
                "[data]",
                format!("{characters} characters, {samples} samples, {masked} masked"),
                "at least 1 of both, and a share between 0 and 1",
            ));
        }
        let model = GraphNetwork::new(spec)?;
        if !model.outputs_nodes() || model.output_width() != letters {
            return Err(Error::invalid(
                "the network's output",
                format!("{} wide", model.output_width()),
                format!("a row per node, {letters} wide: the characters"),
            ));
        }
        let batch = batch.clamp(1, samples);
        let sizes = [characters, samples, batch];
        budget::allow(&text_demand(&model, train, sizes, skips.len()))?;
        let one = Arc::new(text_graph(characters, skips));
        let graph = Arc::new(Graph::union(std::iter::repeat_n(&*one, batch)));
        let mut task = TextTask {
            model,
            one,
            graph,
            characters,
            samples,
            batch,
            masked,
            skips: skips.len(),
            key: Key::new(train.seed).purpose("text"),
            validation: Vec::new(),
            draft: Draft::default(),
            inference: Inference::new(),
        };
        let key = Key::new(train.seed).purpose("validation text");
        let mut draft = Draft::default();
        for part in 0..samples / batch {
            task.draw(batch, key.step(part as u64), &mut draft);
            let drawn = new_batch(&task.graph, &draft)?;
            task.model.check(&drawn.0)?;
            task.validation.push(drawn);
        }
        Ok(task)
    }

    /// A draft of the key: ids with masks, and the characters with weights where they are masked.
    fn draw(&self, samples: usize, key: Key, draft: &mut Draft) {
        let mut stream = key.stream();
        draft.ids.clear();
        draft.truth.clear();
        draft.weights.clear();
        for _ in 0..samples {
            write_sentences(&mut stream, self.characters, &mut draft.text);
            for c in draft.text.chars().take(self.characters) {
                let character = letter(c);
                let hidden = stream.uniform() < self.masked;
                let mask = ALPHABET.len() as u32;
                draft.ids.push(if hidden { mask } else { character });
                draft.truth.push(character);
                draft.weights.push(f32::from(u8::from(hidden)));
            }
        }
    }

    /// The validation's samples with `_` for every masked character.
    pub(super) fn masked_lines(&self) -> Vec<String> {
        let letters: Vec<char> = ALPHABET.chars().collect();
        let mut lines = Vec::new();
        for (_, target) in &self.validation {
            let weights = target.weights.as_deref().unwrap_or_default();
            let characters = target.classes.iter().zip(weights);
            let shown: Vec<char> = characters
                .map(|(&c, &w)| if w > 0.0 { '_' } else { letters[c as usize] })
                .collect();
            let samples = shown.chunks_exact(self.characters);
            lines.extend(samples.map(|s| s.iter().collect::<String>()));
        }
        lines
    }

    /// Masked characters, and how many of them are restored.
    fn restored(&mut self, params: &[f32]) -> (f64, f64) {
        let (mut loss, mut right, mut all) = (0.0, 0.0, 0.0);
        let width = self.model.output_width();
        for (batch, target) in &self.validation {
            let y = self.inference.output(&self.model, params, batch);
            loss += f64::from(Loss::CrossEntropy.compute(y, target, None));
            let weights = target.weights.as_deref().unwrap_or_default();
            for ((row, &class), &w) in y.chunks_exact(width).zip(&target.classes).zip(weights) {
                all += f64::from(w);
                if predicted_class(row, 0.0) == class as usize {
                    right += f64::from(w);
                }
            }
        }
        (loss / self.validation.len().max(1) as f64, right / all)
    }

    /// The first samples of the validation: as given, as restored, as they were.
    fn samples(&mut self, params: &[f32], count: usize) -> String {
        let letters: Vec<char> = ALPHABET.chars().collect();
        let Some((batch, target)) = self.validation.first() else {
            return String::new();
        };
        let width = self.model.output_width();
        let y = self.inference.output(&self.model, params, batch);
        let weights = target.weights.as_deref().unwrap_or_default();
        let mut text = String::new();
        for sample in 0..count.min(self.batch) {
            if sample > 0 {
                text.push('\n');
            }
            let range = sample * self.characters..(sample + 1) * self.characters;
            for form in ["masked  ", "restored", "was     "] {
                text.push_str(form);
                text.push_str("  ");
                for i in range.clone() {
                    let row = &y[i * width..(i + 1) * width];
                    let known = letters[target.classes[i] as usize];
                    text.push(match (form, weights[i] > 0.0) {
                        ("masked  ", true) => '_',
                        ("restored", true) => letters[predicted_class(row, 0.0)],
                        _ => known,
                    });
                }
                text.push('\n');
            }
        }
        text
    }
}

impl Task for TextTask {
    type Model = GraphNetwork;

    fn model(&self) -> &GraphNetwork {
        &self.model
    }
    fn model_mut(&mut self) -> &mut GraphNetwork {
        &mut self.model
    }
    fn loss(&self) -> Loss {
        Loss::CrossEntropy
    }
    fn demand(&self, train: &TrainSpec) -> Demand<'_> {
        let sizes = [self.characters, self.samples, self.batch];
        text_demand(&self.model, train, sizes, self.skips)
    }

    fn steps_per_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        self.part(step, 0..self.batch, example)
    }

    fn samples(&self, _: u64) -> Option<usize> {
        Some(self.batch)
    }

    fn shard_of(&self) -> (&'static str, usize) {
        ("texts", 1)
    }

    fn part(
        &mut self,
        step: u64,
        samples: Range<usize>,
        example: &mut Option<Example<GraphNetwork>>,
    ) -> Result<()> {
        let mut draft = std::mem::take(&mut self.draft);
        self.draw(samples.end, self.key.step(step), &mut draft);
        // One stream gives all: those before are drawn and left.
        let before = samples.start * self.characters;
        draft.ids.drain(..before);
        draft.truth.drain(..before);
        draft.weights.drain(..before);
        match example {
            Some(Example { input, target }) if target.classes.len() == draft.truth.len() => {
                input.set_ids(&draft.ids)?;
                target.classes.clone_from(&draft.truth);
                let weights = target.weights.get_or_insert_default();
                weights.clone_from(&draft.weights);
            }
            _ => {
                let graph = match samples.len() == self.batch {
                    true => self.graph.clone(),
                    false => {
                        let texts = std::iter::repeat_n(&*self.one, samples.len());
                        Arc::new(Graph::union(texts))
                    }
                };
                let (input, target) = new_batch(&graph, &draft)?;
                *example = Some(Example { input, target });
            }
        }
        self.draft = draft;
        Ok(())
    }

    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        let (loss, restored) = self.restored(params);
        Ok(vec![
            ("validation_loss".into(), loss),
            ("validation_accuracy".into(), restored),
        ])
    }

    fn measured_on(&self, figure: &str) -> Option<MeasuredOn> {
        let part = match figure.split('_').next()? {
            "train" => "training",
            "validation" | "restored" => "validation",
            _ => return None,
        };
        Some(MeasuredOn::part(part, None))
    }

    /// One sample: the reference of a whole batch takes too long for the end of a run. Every
    /// character counts, so that every letter of the alphabet that occurs has a gradient.
    fn specimen(&mut self) -> Result<Specimen<GraphNetwork>> {
        let mut draft = Draft::default();
        self.draw(1, self.key.purpose("specimen"), &mut draft);
        draft.weights.fill(1.0);
        let (input, target) = new_batch(&self.one, &draft)?;
        Ok(Specimen {
            example: Example { input, target },
            model: None,
        })
    }

    fn picture(&mut self, params: &[f32]) -> Option<String> {
        Some(self.samples(params, 1))
    }

    fn finish(&mut self, params: &[f32], run: &Path) -> Result<Findings> {
        let (_, restored) = self.restored(params);
        let mut findings = Findings::default();
        findings.summary.insert("restored".into(), restored.into());
        findings.figures.push(Figure {
            title: "Restored characters".into(),
            caption: "Sentences that were not trained on; _ is masked.".into(),
            content: Content::Text(self.samples(params, 8)),
        });
        if let Some(EmbeddingSpec { out, .. }) = self.model.embedding() {
            let rows = &params[self.model.layout().tensors()[0].range()];
            let letters = ALPHABET.chars().chain(['_']);
            let class = |c: char| {
                if "aeiou".contains(c) {
                    0
                } else {
                    1 + u32::from(!c.is_alphabetic())
                }
            };
            let classes: Vec<u32> = letters.clone().map(class).collect();
            let names: Vec<String> = letters
                .map(|c| {
                    if c == ' ' {
                        "␣".into()
                    } else {
                        c.to_string()
                    }
                })
                .collect();
            let svg = draw::names_at(&draw::project(rows, *out), &names, &classes);
            let caption = "The first layer's rows, along their two principal directions: vowels \
                           blue, consonants red, the rest green; _ is the mask.";
            let file = (run, "embedding.svg");
            add_drawing(
                &mut findings,
                file,
                "The characters' embedding",
                caption,
                svg,
            )?;
        }
        Ok(findings)
    }
}
