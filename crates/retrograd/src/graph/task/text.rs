//! Masked characters: sentences from a small grammar become graphs, some characters are hidden,
//! and the network says what they were.

use std::path::Path;
use std::sync::Arc;

use super::Inference;
use crate::data::metrics::predicted_class;
use crate::graph::batch::GraphBatch;
use crate::graph::network::GraphNetwork;
use crate::graph::spec::GraphSpec;
use crate::graph::structure::Graph;
use crate::graph::transform::text_graph;
use crate::rng::{Key, Stream};
use crate::train::{Content, Example, Figure, Findings, Metrics, Task};
use crate::{Error, Loss, Result, Target};

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
    /// Every sample has the same topology; a batch's is the union.
    graph: Arc<Graph>,
    characters: usize,
    samples: usize,
    batch: usize,
    masked: f64,
    key: Key,
    validation: Vec<(GraphBatch<f32>, Target<f32>)>,
    inference: Inference,
}

/// A text of that length, as ids.
fn sentence(stream: &mut Stream, length: usize) -> Vec<u32> {
    let mut text = String::new();
    while text.len() < length {
        let mut word = |words: &[&'static str]| words[stream.below(words.len())];
        let article = word(&ARTICLES);
        let (adjective, noun, verb) = (word(&ADJECTIVES), word(&NOUNS), word(&VERBS));
        let (other, object) = (word(&ARTICLES), word(&NOUNS));
        text.push_str(&format!(
            "{article} {adjective} {noun} {verb} {other} {object}. "
        ));
    }
    let places: Vec<char> = ALPHABET.chars().collect();
    text.chars()
        .take(length)
        .map(|c| places.iter().position(|&p| p == c).unwrap_or(0) as u32)
        .collect()
}

impl TextTask {
    /// `[characters, samples, batch]`.
    pub fn new(
        spec: &GraphSpec,
        [characters, samples, batch]: [usize; 3],
        masked: f64,
        skips: &[usize],
        seed: u64,
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
        let one = text_graph(characters, skips);
        let graph = Arc::new(Graph::union(std::iter::repeat_n(&one, batch)));
        let mut task = TextTask {
            model,
            graph,
            characters,
            samples,
            batch,
            masked,
            key: Key::new(seed).purpose("text"),
            validation: Vec::new(),
            inference: Inference::new(),
        };
        let key = Key::new(seed).purpose("validation text");
        for part in 0..samples / batch {
            let drawn = task.draw(key.step(part as u64))?;
            task.model.check(&drawn.0)?;
            task.validation.push(drawn);
        }
        Ok(task)
    }

    /// A batch of the key: ids with masks, and the characters with weights where they are masked.
    fn draw(&self, key: Key) -> Result<(GraphBatch<f32>, Target<f32>)> {
        let letters = ALPHABET.chars().count();
        let mut stream = key.stream();
        let (mut ids, mut truth, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.batch {
            for character in sentence(&mut stream, self.characters) {
                let hidden = stream.uniform() < self.masked;
                ids.push(if hidden { letters as u32 } else { character });
                truth.push(character);
                weights.push(f32::from(u8::from(hidden)));
            }
        }
        let batch = GraphBatch::ids(self.graph.clone(), letters + 1, &ids)?;
        Ok((batch, Target::classes(truth).weighted(weights)))
    }

    /// Masked characters, and how many of them are restored.
    fn restored(&mut self, params: &[f32]) -> (f64, f64) {
        let (mut loss, mut right, mut all) = (0.0, 0.0, 0.0);
        let width = self.model.output_width();
        for (batch, target) in &self.validation {
            let y = self.inference.output(&self.model, params, batch);
            loss += f64::from(Loss::CrossEntropy.evaluate(y, target, None));
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
    fn steps_per_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    fn batch(&mut self, step: u64, example: &mut Option<Example<GraphNetwork>>) -> Result<()> {
        let (input, target) = self.draw(self.key.step(step))?;
        *example = Some(Example { input, target });
        Ok(())
    }

    fn evaluate(&mut self, params: &[f32], _: u64) -> Result<Metrics> {
        let (loss, restored) = self.restored(params);
        Ok(vec![
            ("validation_loss".into(), loss),
            ("validation_accuracy".into(), restored),
        ])
    }

    fn picture(&mut self, params: &[f32]) -> Option<String> {
        Some(self.samples(params, 1))
    }

    fn finish(&mut self, params: &[f32], _: &Path) -> Result<Findings> {
        let (_, restored) = self.restored(params);
        let mut findings = Findings::default();
        findings.summary.insert("restored".into(), restored.into());
        findings.figures.push(Figure {
            title: "Restored characters".into(),
            caption: "Sentences that were not trained on; _ is masked.".into(),
            content: Content::Text(self.samples(params, 8)),
        });
        Ok(findings)
    }
}
