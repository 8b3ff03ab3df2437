//! The report of a run: one page that needs nothing else, light and dark.

mod chart;
mod cite;
mod machine;
mod scatter;

use crate::math;
use std::fmt::Write;
use std::path::Path;

use super::checkpoint::Progress;
use super::{Content, Digests, Experiment, Figure, Record, Summary, Verification};
use crate::Layout;
use crate::verify::{Link, Verdict};

pub(super) use chart::curves;
use chart::page_curves;
pub(super) use machine::cpu;
pub(super) use scatter::{scatter, scatter_around_zero};

/// What the page is made of.
pub(super) struct Page<'a> {
    pub experiment: &'a Experiment,
    pub folder: &'a Path,
    pub layout: &'a Layout,
    pub summary: &'a Summary,
    pub progress: &'a Progress,
    pub records: &'a [Record],
    pub figures: &'a [Figure],
    /// Seconds that the family's own pictures and measures took.
    pub finishing: f64,
    /// What computed the steps.
    pub device: &'a str,
}

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(super) fn page(page: &Page) -> String {
    let mut html = String::new();
    let name = escape(&page.experiment.name);
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{name} · retrograd</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<p class=\"kicker\">retrograd · {}</p>\n<h1>{name}</h1>\n<p>{}</p>\n</header>\n",
        escape(page.experiment.family()),
        escape(&page.experiment.about),
    );
    tiles(&mut html, page);
    // Where a figure of the summary is of the test part, the curve is that of the part that chose.
    let of = |name: &str| {
        let chose = page.summary.source(&format!("validation_{name}"));
        let source = chose.or_else(|| page.summary.source(name))?;
        Some(source.on.to_string())
    };
    let caption = match page.records.iter().any(|record| record.best) {
        true => "The dot is the epoch whose weights are kept.",
        false => "",
    };
    section(
        &mut html,
        "Curves",
        caption,
        &page_curves(page.records, &of),
    );
    for figure in page.figures {
        let title = escape(&figure.title);
        section(
            &mut html,
            &title,
            &escape(&figure.caption),
            &content(&figure.content),
        );
    }
    section(
        &mut html,
        "Verification of this model",
        "The trained weights on a small batch, at the end of the run. A ratio of 1 is the most that \
         the bound allows; what could not be checked says so and does not count as passed.",
        &verification(page.summary.verification.as_ref()),
    );
    section(
        &mut html,
        "Time",
        "What the seconds of the run went into.",
        &times(page),
    );
    let device = format!(
        "<dl class=\"facts\"><dt>steps on</dt><dd>{}</dd><dt>system</dt><dd>{}</dd>\
         <dt>retrograd</dt><dd>{}</dd><dt>seed</dt><dd>{}</dd></dl>",
        escape(page.device),
        escape(&machine::system()),
        env!("CARGO_PKG_VERSION"),
        page.progress.seed,
    );
    section(&mut html, "Device", "", &device);
    if let Some(digests) = &page.summary.digests {
        section(
            &mut html,
            "Bits",
            "The same experiment on the same data gives the same weights on every processor. \
             <code>retrograd reproduce</code> trains again and compares; <code>sha256sum \
             model.safetensors</code> prints the digest.",
            &bits(digests),
        );
    }
    section(&mut html, "Parameters", "", &parameters(page.layout));
    let settings = format!("<pre>{}</pre>", escape(&page.experiment.to_toml()));
    section(
        &mut html,
        "Settings",
        "The experiment with what the command line changed, as in experiment.toml.",
        &format!("<details><summary>experiment.toml</summary>{settings}</details>"),
    );
    let _ = write!(
        html,
        "<section>\n<h2>Go on</h2>\n<p>With more epochs, from where it stopped; or with new data:</p>\n\
         <pre>retrograd train --resume {folder} --epochs {more}\nretrograd run {folder} --help</pre>\n\
         <p>The weights are in <code>model.safetensors</code> under PyTorch's names: \
         <code>model.load_state_dict(safetensors.torch.load_file(\"model.safetensors\"))</code>.\
         </p>\n</section>\n\
         <section>\n<h2>Cite</h2>\n{cite}</section>\n\
         <footer>The same experiment with the same seed gives the same bits, on any processor, with \
         any number of threads.</footer>\n</main>\n</body>\n</html>\n",
        folder = escape(&shell(page.folder)),
        more = page.summary.epochs.max(page.experiment.train.epochs) * 2,
        cite = cite::section(page.experiment),
    );
    html
}

/// The digests of weights and data.
fn bits(digests: &Digests) -> String {
    let mut rows = vec![
        vec!["weights".into(), digests.weights.clone()],
        vec![
            "contract of bits".into(),
            format!("version {}", digests.contract),
        ],
    ];
    if digests.device != "cpu" {
        let own = format!("{}: its bits are its own", digests.device);
        rows.push(vec!["computed on".into(), own]);
    }
    let data = digests.data.iter();
    rows.extend(data.map(|(name, digest)| vec![name.clone(), digest.clone()]));
    content(&Content::Table {
        header: vec!["what".into(), "SHA-256".into()],
        rows,
    })
}

fn section(html: &mut String, title: &str, caption: &str, body: &str) {
    let caption = match caption {
        "" => String::new(),
        text => format!("<p>{text}</p>\n"),
    };
    let _ = write!(
        html,
        "<section>\n<h2>{title}</h2>\n{caption}{body}\n</section>\n"
    );
}

fn tiles(html: &mut String, page: &Page) {
    let summary = page.summary;
    // A name, a value, and where a measure comes from.
    let mut tiles = vec![
        ("epochs".to_string(), summary.epochs.to_string(), None),
        ("steps".to_string(), summary.steps.to_string(), None),
        ("time".to_string(), duration(summary.seconds), None),
        ("ms per step".to_string(), number(summary.ms_per_step), None),
    ];
    let losses = [
        ("train_loss", Some(summary.train_loss)),
        ("validation_loss", summary.validation_loss),
    ];
    for (name, loss) in losses {
        if let Some(loss) = loss {
            tiles.push((name.replace('_', " "), number(loss), summary.source(name)));
        }
    }
    if let Some(epoch) = summary.best_epoch {
        tiles.push(("best epoch".into(), epoch.to_string(), None));
    }
    if summary.skipped_steps > 0 {
        let skipped = summary.skipped_steps.to_string();
        tiles.push(("skipped steps".into(), skipped, None));
    }
    for (name, value) in &summary.more {
        let text = match value {
            serde_json::Value::Number(n) => n.as_f64().map(number),
            serde_json::Value::Bool(b) => Some(b.to_string()),
            serde_json::Value::String(s) if s.len() < 24 => Some(s.clone()),
            _ => None,
        };
        if let Some(text) = text {
            tiles.push((name.replace('_', " "), text, summary.source(name)));
        }
    }
    html.push_str("<dl class=\"tiles\">\n");
    for (name, value, source) in tiles {
        let source = source.map_or(String::new(), |source| {
            format!("<dd class=\"from\">{}</dd>", escape(&source.sentence()))
        });
        let _ = writeln!(
            html,
            "<div><dt>{}</dt><dd>{}</dd>{source}</div>",
            escape(&name),
            escape(&value)
        );
    }
    html.push_str("</dl>\n");
}

/// A figure's content as HTML.
pub(super) fn content(content: &Content) -> String {
    match content {
        Content::Svg(svg) => format!("<figure>{svg}</figure>"),
        Content::Png(bytes) => picture("png", bytes),
        Content::Gif(bytes) => picture("gif", bytes),
        Content::Text(text) => format!("<pre>{}</pre>", escape(text)),
        Content::Table { header, rows } => table(header, rows),
    }
}

fn picture(kind: &str, bytes: &[u8]) -> String {
    format!(
        "<figure><img alt=\"\" src=\"data:image/{kind};base64,{}\"></figure>",
        base64(bytes)
    )
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n<tr>");
    for cell in header {
        let _ = write!(html, "<th>{}</th>", escape(cell));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>");
    html
}

/// The links as a table, and every check under it.
fn verification(verification: Option<&Verification>) -> String {
    let Some(verification) = verification else {
        return "<p>Not verified: left out with --no-verify.</p>".into();
    };
    let counts = verification.report.counts();
    let badge = if counts.failed > 0 {
        (
            "bad",
            format!(
                "{} of {} checks failed",
                counts.failed,
                verification.report.rows.len()
            ),
        )
    } else if counts.unchecked > 0 {
        let text = format!(
            "{} checks passed, {} not checked",
            counts.passed, counts.unchecked
        );
        ("doubt", text)
    } else {
        ("good", format!("{} checks passed", counts.passed))
    };
    let mut html = format!(
        "<p><strong class=\"{}\">{}</strong> over {} elements, in {}.</p>\n<div class=\"wide\">\
         <table class=\"checks\">\n<tr><th>link</th><th>what is compared</th><th>elements</th>\
         <th>error / bound</th><th>verdict</th></tr>\n",
        badge.0,
        badge.1,
        counts.elements,
        duration(verification.seconds),
    );
    for link in verification.links() {
        let what = match link.link {
            Link::Differences => "gradients of the f64 reference with central differences",
            Link::Cpu => "f32 kernels with the f64 reference, within the predicted rounding",
            Link::Threads => "gradients and three steps on 2 and 7 threads with 1: equal bits",
            Link::Processes => "gradients and steps of several processes with one: equal bits",
            Link::Machines => "every instruction set of this machine with the best: equal bits",
            _ => "",
        };
        let notes = match link.notes.as_slice() {
            [] => String::new(),
            notes if what.is_empty() => format!("<small>{}</small>", escape(&notes.join("; "))),
            notes => format!("<br><small>{}</small>", escape(&notes.join("; "))),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{what}{notes}</td><td>{}</td><td>{}</td>{}</tr>",
            link.link.name(),
            link.elements,
            link.worst.map_or("–".to_string(), ratio),
            verdict(link.verdict),
        );
    }
    html.push_str(
        "</table></div>\n<details><summary>every check</summary><div class=\"wide\"><table>\n\
         <tr><th>link</th><th>tensor</th><th>elements</th><th>error</th><th>bound</th>\
         <th>error / bound</th><th>verdict</th><th></th></tr>\n",
    );
    for row in &verification.report.rows {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}<td>{}</td></tr>",
            row.link.name(),
            escape(&row.tensor),
            row.elements,
            small(row.error),
            small(row.bound),
            ratio(row.ratio),
            verdict(row.verdict),
            escape(&row.note),
        );
    }
    html.push_str("</table></div></details>");
    html
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "<td class=\"good\">passed</td>",
        Verdict::Fail => "<td class=\"bad\">FAILED</td>",
        Verdict::Unchecked => "<td class=\"doubt\">not checked</td>",
    }
}

fn small(x: f64) -> String {
    if x.is_nan() {
        "–".into()
    } else if x == 0.0 {
        "0".into()
    } else {
        format!("{x:.1e}")
    }
}

fn ratio(x: f64) -> String {
    if (0.001..1000.0).contains(&x) {
        format!("{x:.3}")
    } else {
        small(x)
    }
}

/// A bar of the phases, and a table of the same.
fn times(page: &Page) -> String {
    let progress = page.progress;
    let computing = progress.stepping - progress.loading - progress.updating;
    let verifying = page
        .summary
        .verification
        .as_ref()
        .map_or(0.0, |v| v.seconds);
    let mut parts = vec![("data", progress.loading, "--f")];
    // Known apart where steps are made one after the other, on the CPU.
    let (forward, backward) = (progress.forward, computing - progress.forward);
    if forward > 0.0 {
        parts.push(("forward and loss", forward, "--a"));
        parts.push(("backward", math::max(backward, 0.0), "--h"));
    } else {
        parts.push(("forward and backward", math::max(computing, 0.0), "--a"));
    }
    parts.extend([
        ("optimizer", progress.updating, "--c"),
        ("evaluation", progress.evaluating, "--b"),
        ("checkpoints", progress.saving, "--e"),
        ("measures and pictures at the end", page.finishing, "--d"),
        ("verification", verifying, "--g"),
    ]);
    let all: f64 = parts.iter().map(|(_, seconds, _)| seconds).sum();
    let share = |seconds: f64| 100.0 * seconds / math::max(all, f64::MIN_POSITIVE);
    let mut html = String::from("<div class=\"bar\">");
    for (name, seconds, colour) in &parts {
        let _ = write!(
            html,
            "<span style=\"width:{:.3}%;background:var({colour})\" title=\"{name}\"></span>",
            share(*seconds)
        );
    }
    html.push_str("</div>\n<div class=\"wide\"><table>\n<tr><th></th><th>phase</th><th>seconds</th><th>share</th></tr>\n");
    for (name, seconds, colour) in &parts {
        let _ = writeln!(
            html,
            "<tr><td><i class=\"key\" style=\"background:var({colour})\"></i></td><td>{name}</td>\
             <td>{seconds:.3}</td><td>{:.1} %</td></tr>",
            share(*seconds)
        );
    }
    let steps = page.summary.steps.max(1) as f64;
    let _ = write!(
        html,
        "</table></div>\n<p class=\"after\">{} a step for data, forward, backward and optimizer.</p>",
        step_time(progress.stepping / steps)
    );
    html
}

fn step_time(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{} µs", number(seconds * 1e6))
    } else {
        format!("{} ms", number(seconds * 1e3))
    }
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

fn parameters(layout: &Layout) -> String {
    let header = ["tensor", "shape", "parameters", ""].map(String::from);
    let mut rows: Vec<Vec<String>> = layout
        .tensors()
        .iter()
        .map(|t| {
            let frozen = if t.frozen { "frozen" } else { "" };
            vec![
                t.name.clone(),
                format!("{:?}", t.shape),
                t.len().to_string(),
                frozen.to_string(),
            ]
        })
        .collect();
    rows.push(vec![
        "all".into(),
        String::new(),
        layout.len().to_string(),
        String::new(),
    ]);
    let table = table(&header, &rows);
    // A long list is for those who ask for it.
    if layout.tensors().len() <= 8 {
        return table;
    }
    format!(
        "<details><summary>{} in {} tensors</summary>{table}</details>",
        layout.len(),
        layout.tensors().len()
    )
}

/// Text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A number as people read it: four digits.
pub fn number(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    if x.fract() == 0.0 && x.abs() < 1e7 {
        return format!("{x}");
    }
    let digits = math::log10(x.abs()).floor();
    if (-3.0..7.0).contains(&digits) {
        format!("{x:.*}", math::max(3.0 - digits, 0.0) as usize)
    } else {
        format!("{x:.3e}")
    }
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i <= chunk.len() {
                text.push(DIGITS[(bits >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_rfc_4648() {
        // The test vectors of its section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn numbers_have_four_digits() {
        for (x, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.123456, "0.1235"),
            (1234.56, "1235"),
            (1.0e-9, "1.000e-9"),
        ] {
            assert_eq!(number(x), text);
        }
        assert_eq!(duration(75.0), "1 min 15 s");
    }
}
