//! `retrograd init`

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use retrograd::data::prepare::TaskKind;
use retrograd::data::write_whole;
use retrograd::family::draft::{self, InitOptions, Place};

use crate::exit::{Outcome, Result};
use crate::log::plain;

/// Writes an experiment file for your own data: a table, a folder of images, a graph, or a folder of
/// graphs.
///
/// It looks at the data, chooses what to predict and a small network that fits, says why, and
/// writes a file with comments, to be changed as you like. Nothing is trained.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd init wine.csv --target quality
  retrograd init rows.csv.gz --target price
  retrograd init micrographs/
  retrograd init micrographs/ --bin 2
  retrograd init edges.csv --features features.csv --labels labels.csv
  retrograd init friends.csv --links
  retrograd init club.graphml --target team
  retrograd init molecules/ --labels boiling-points.csv

A table has a row per sample, with commas, semicolons, tabs, bars or blanks
between the fields; - is one from standard input. Images are MRC, PNG, TIFF or NPY; files named odd and even, or
noisy and clean, are taken in pairs, others alone. Edges are two columns of nodes,
by number or by name; features and labels have a row per node, in order or
beside its name. Links are predicted from the edges alone, or with features.
GraphML and GML have attributes instead. A folder of graphs has a file for each
(GraphML, GML, or a list of edges) or TUDataset's text; what is predicted is an
attribute of the graphs (--target), stands in a table beside the files' names
(--labels), or names the folder within the folder.")]
pub struct InitArgs {
    /// A table, a folder of images, a table of edges, GraphML or GML, or a folder of graphs.
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Tables: the column to predict. Graphs: the attribute of nodes, or of graphs.
    #[arg(long, value_name = "COLUMN")]
    target: Option<String>,
    /// What is predicted, if not what its values suggest.
    #[arg(long, value_name = "TASK")]
    task: Option<TaskArg>,
    /// Tables: a Kolmogorov-Arnold network, whose formula `retrograd explain` says.
    #[arg(long, requires = "target")]
    kan: bool,
    /// Images: N × N pixels become one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    bin: Option<u64>,
    /// Graphs: a row of numbers per node, CSV or NPY; may be left out.
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    features: Option<PathBuf>,
    /// Graphs: a class per node, numbers or text, CSV or NPY; of a folder, a table of files and what
    /// they are.
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    labels: Option<PathBuf>,
    /// Graphs: predict which nodes are linked.
    #[arg(long, conflicts_with_all = ["target", "labels", "directed"])]
    links: bool,
    /// Graphs: edges go one way, from the first column to the second.
    #[arg(long, requires = "labels")]
    directed: bool,
    /// The experiment file; NAME.toml in the current folder by default.
    #[arg(long, value_name = "FILE.toml")]
    out: Option<PathBuf>,
    /// Overwrites an existing file.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TaskArg {
    /// Numbers.
    Regression,
    /// One of several classes.
    Classification,
}

pub fn run(args: InitArgs) -> Result {
    if args.data != Path::new("-") && !args.data.exists() {
        bail!(
            "init: {}: there is no such file or folder",
            args.data.display()
        );
    }
    let place = Place::new(&args.data, args.out.as_deref())?;
    if place.file.exists() && !args.force {
        return Err(taken(&place.file));
    }
    let draft = draft::draft(
        &InitOptions {
            data: args.data,
            target: args.target,
            task: args.task.map(|task| match task {
                TaskArg::Regression => TaskKind::Regression,
                TaskArg::Classification => TaskKind::Classification,
            }),
            kan: args.kan,
            bin: args.bin.map(|bin| bin as usize),
            features: args.features,
            labels: args.labels,
            links: args.links,
            directed: args.directed,
        },
        &place,
    )?;
    if args.force {
        write_whole(&place.file, |file| file.write_all(draft.text.as_bytes()))?;
    } else {
        write_new(&place.file, &draft.text)?;
    }
    for (name, text) in &draft.findings {
        println!("{name:20} {}", plain(text));
    }
    println!(
        "{:20} {}",
        "experiment",
        plain(&place.file.display().to_string())
    );
    println!(
        "\nTrain it:\n  retrograd train {}",
        plain(&shell(&place.file))
    );
    if !draft.inputs.is_empty() {
        println!(
            "Then use it:\n  retrograd run runs/{} {}",
            place.name, draft.inputs
        );
    }
    Ok(Outcome::Done)
}

fn taken(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: is there already; --force writes over it, --out FILE.toml chooses another",
        path.display()
    )
}

/// Writes a file that must not be there yet.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(taken(path)),
        file => file.with_context(|| format!("{}: cannot write", path.display()))?,
    };
    // The name is ours; what it names is written whole or not at all.
    write_whole(path, |file| file.write_all(text.as_bytes())).inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })?;
    Ok(())
}

/// A path as a shell takes it.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
