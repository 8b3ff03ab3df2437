//! What a trained KAN says: a formula by the names of columns, how good it is on rows kept aside, and a
//! picture with the same names.

use std::path::Path;

use super::plot::{Names, plot_named};
use super::prune::prune;
use super::{PlotOptions, SymbolicNetwork, SymbolicOptions};
use crate::data::prepare::{Encoding, Inputs, TargetRule};
use crate::data::{Preparation, write_whole};
use crate::family::{Console, RunOptions};
use crate::scalar::cast;
use crate::train::{NetworkTask, Task, number};
use crate::{Error, Result, disk};

/// Training rows that functions are fitted on.
const ROWS: usize = 2_000;
/// Steps of tuning a formula's constants.
const REFINED: usize = 60;

/// Says the formula of a run's network, with its figures beside the network's, and draws it.
pub(crate) fn explain(
    task: &NetworkTask,
    params: &[f32],
    options: &RunOptions,
    console: &mut dyn Console,
) -> Result<()> {
    let Some(preparation) = task.preparation() else {
        let problem = "the run has no table: needs one that learnt from columns";
        return Err(Error::refused("explain", problem));
    };
    let x = task.training_inputs(ROWS);
    let pruned = options
        .prune
        .map(|least| prune(task.model(), params, &x, least));
    let pruned = pruned.transpose()?;
    let (network, params) = match &pruned {
        Some(pruned) => {
            let count = pruned.masked.edges().len();
            console.value("pruned", &format!("{count} edges"));
            (&pruned.network, &*pruned.params)
        }
        None => (task.model(), params),
    };
    let not_kan = |_| {
        let problem = "a layer is none of a KAN, and has no functions to name; retrograd init TABLE \
                       --target COLUMN --kan writes an experiment of KAN layers";
        Error::refused("explain", problem)
    };
    let mut symbolic = SymbolicNetwork::from_kan(network, params, &x, &SymbolicOptions::default())
        .map_err(not_kan)?;
    // Tuned to say what the network says.
    let said = network.predict(params, &x)?;
    symbolic.refine(&cast::<f32, f64>(&x), &cast::<f32, f64>(&said), REFINED);
    let names = Names::of(preparation, network.output_len());
    let terms = terms(preparation, &names.inputs);
    let mut text = String::new();
    for (i, name) in names.outputs.iter().enumerate() {
        let formula = substituted(&symbolic.formula(i).rounded(3).text(), &terms);
        let line = in_units(preparation, i, name, &formula);
        console.value("formula", &line);
        text += &format!("{line}\n");
    }
    let (part, data) = task.reported();
    let width = network.output_len();
    let outputs: Vec<f32> = cast::<f32, f64>(data.inputs())
        .chunks_exact(data.sample_len())
        .flat_map(|x| symbolic.value(x))
        .map(|y| y as f32)
        .collect();
    debug_assert_eq!(outputs.len(), data.len() * width);
    let of_formula = task.figures_of(data, &outputs)?;
    let of_network = task.figures_of(data, &network.predict(params, data.inputs())?)?;
    for ((name, formula), (_, network)) in of_formula.iter().zip(&of_network) {
        let line = format!(
            "{} by the formula, {} by the network ({} {part} rows)",
            number(*formula),
            number(*network),
            data.len()
        );
        console.value(name, &line);
        text += &format!("{name}: {line}\n");
    }
    let folder = options.out.as_deref().unwrap_or(&options.run);
    if options.out.is_some() {
        disk::make_folder(folder)?;
    }
    let svg = plot_named(network, params, &x, &PlotOptions::default(), &names)?;
    for (name, bytes) in [
        ("formula.txt", text.as_bytes()),
        ("explained.svg", svg.as_bytes()),
    ] {
        let path = folder.join(name);
        write_whole(&path, |file| file.write_all(bytes))?;
        console.value("written", &path.display());
    }
    Ok(())
}

/// What stands for every input in the formula: its column, normalised as the network sees it.
fn terms(preparation: &Preparation, names: &[String]) -> Vec<String> {
    let Inputs::Columns(columns) = &preparation.inputs else {
        return names.to_vec();
    };
    let mut terms = Vec::new();
    for column in columns {
        let own = match &column.encoding {
            Encoding::Number { scaling, .. } | Encoding::Date { scaling, .. } => {
                match (scaling.shift.first(), scaling.scale.first()) {
                    (Some(&shift), Some(&scale)) => {
                        let sign = if shift < 0.0 { "+" } else { "-" };
                        let (shift, scale) = (number(shift.abs()), number(scale));
                        format!("(({} {sign} {shift})/{scale})", column.name)
                    }
                    _ => column.name.clone(),
                }
            }
            Encoding::Category { .. } => String::new(),
        };
        let first = terms.len();
        let count = column.encoding.width();
        let others = names[first..first + count]
            .iter()
            .map(|name| format!("[{name}]"));
        terms.extend(others);
        if !own.is_empty() {
            terms[first] = own;
        }
    }
    terms
}

/// A formula with x_1, x_2 … replaced.
fn substituted(formula: &str, terms: &[String]) -> String {
    let mut text = String::new();
    let mut rest = formula;
    while let Some(at) = rest.find("x_") {
        let digits = rest[at + 2..]
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        let end = at + 2 + digits;
        text += &rest[..at];
        let term = rest[at + 2..end].parse::<usize>().ok();
        let term = term.and_then(|n| terms.get(n.checked_sub(1)?));
        text += term.map_or(&rest[at..end], String::as_str);
        rest = &rest[end..];
    }
    text + rest
}

/// `name = formula`, in the target's own units.
fn in_units(preparation: &Preparation, i: usize, name: &str, formula: &str) -> String {
    if let TargetRule::Values { scaling, .. } = &preparation.target
        && !scaling.shift.is_empty()
    {
        let outputs = preparation.outputs();
        let at = |value: f64| scaling.undo(i, outputs, value);
        let (shift, scale) = (at(0.0), at(1.0) - at(0.0));
        return format!("{name} = {} + {}*({formula})", number(shift), number(scale));
    }
    format!("{name} = {formula}")
}

/// Opens a run of the `network` or `kan` family and explains it.
pub(crate) fn explain_run(
    open: impl FnOnce(&Path) -> Result<(NetworkTask, Vec<f32>)>,
    options: &RunOptions,
    console: &mut dyn Console,
) -> Result<()> {
    let (task, params) = open(&options.run)?;
    explain(&task, &params, options, console)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_named_in_formulas() {
        let terms: Vec<String> = (1..=12).map(|i| format!("c{i}")).collect();
        let text = substituted("2*x_1 + sin(x_12) - x_2^2", &terms);
        assert_eq!(text, "2*c1 + sin(c12) - c2^2");
        assert_eq!(substituted("max(1, x_13)", &terms), "max(1, x_13)");
    }
}
