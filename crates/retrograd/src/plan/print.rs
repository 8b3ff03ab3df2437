//! A plan as text.

use std::fmt::Write as _;

use super::{Onto, Place, Plan, RowsOf, Value};
use crate::Layout;

fn name(value: Value) -> String {
    match value {
        Value::Input => "input".into(),
        Value::Of(layer) => format!("v{layer}"),
    }
}

fn onto(to: Onto) -> String {
    let how = if to.adds { "added to" } else { "→" };
    format!("{how} d({})", name(to.value))
}

impl Plan {
    /// What is computed, a line a step.
    pub fn text(&self, places: &[Place], layout: &Layout) -> String {
        let mut text = String::from("forward\n");
        for step in &self.forward {
            let place = &places[step.layer];
            let mut reads = name(step.x);
            if let Some(other) = step.other {
                let _ = write!(reads, ", {}", name(other));
            }
            let relu = if step.relu {
                ", with the ReLU after it"
            } else {
                ""
            };
            let shape = &places[step.y].shape;
            let per = match place.rows {
                RowsOf::Samples => String::new(),
                rows => format!(" per {}", rows.name()),
            };
            let _ = writeln!(
                text,
                "  {:3} {:18} {reads} → v{} {shape:?}{per}{relu}",
                step.layer, place.kind, step.y
            );
        }
        text.push_str("backward\n");
        for step in &self.backward {
            let place = &places[step.layer];
            let kind = match &step.stack[..] {
                [] => place.kind.to_string(),
                stack => format!("stack of {} conv2d", stack.len()),
            };
            let d_y = match step.y == self.output {
                true => "d(output)".to_string(),
                false => format!("d(v{})", step.y),
            };
            let mut parts: Vec<String> = Vec::new();
            parts.extend(step.d_x.map(onto));
            parts.extend(step.d_other.map(onto));
            let whole = layout.tensors().iter().filter(|t| {
                let range = t.range();
                step.complete
                    .iter()
                    .any(|c| c.start <= range.start && range.end <= c.end)
            });
            let names: Vec<&str> = whole.map(|t| t.name.as_str()).collect();
            if !names.is_empty() {
                parts.push(format!("complete: {}", names.join(", ")));
            }
            let _ = writeln!(
                text,
                "  {:3} {kind:18} {d_y} {}",
                step.layer,
                parts.join("; ")
            );
        }
        text
    }
}
