//! The report of a run: one page that needs nothing else, light and dark.

mod chart;

use std::fmt::Write;
use std::path::Path;

use super::checkpoint::Progress;
use super::{Content, Experiment, Figure, Record, Summary};
use crate::{Layout, parallel, simd};

pub(super) use chart::{curves, scatter};

/// What the page is made of.
pub(super) struct Page<'a> {
    pub experiment: &'a Experiment,
    pub folder: &'a Path,
    pub layout: &'a Layout,
    pub summary: &'a Summary,
    pub progress: &'a Progress,
    pub records: &'a [Record],
    pub figures: &'a [Figure],
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
    section(&mut html, "Curves", "", &curves(page.records, false));
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
        "Time",
        "Seconds of the run, by what they went into.",
        &times(page),
    );
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
        "<section>\n<h2>Go on</h2>\n<pre>retrograd train --resume {folder} --epochs {more}</pre>\n\
         <p>The weights are in <code>model.safetensors</code> under PyTorch's names: \
         <code>model.load_state_dict(safetensors.torch.load_file(\"model.safetensors\"))</code>.\
         </p>\n</section>\n\
         <footer>retrograd {version} · seed {seed} · {threads} threads, {level}. The same seed \
         gives the same bits with any number of threads.</footer>\n</main>\n</body>\n</html>\n",
        folder = escape(&page.folder.display().to_string()),
        more = page.summary.epochs.max(page.experiment.train.epochs) * 2,
        version = env!("CARGO_PKG_VERSION"),
        seed = page.progress.seed,
        threads = parallel::threads(),
        level = simd::level_name(),
    );
    html
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
    let mut tiles = vec![
        ("epochs".to_string(), summary.epochs.to_string()),
        ("steps".to_string(), summary.steps.to_string()),
        ("time".to_string(), duration(summary.seconds)),
        ("ms per step".to_string(), number(summary.ms_per_step)),
        ("train loss".to_string(), number(summary.train_loss)),
    ];
    if let Some(loss) = summary.validation_loss {
        tiles.push(("validation loss".into(), number(loss)));
    }
    if let Some(epoch) = summary.best_epoch {
        tiles.push(("best epoch".into(), epoch.to_string()));
    }
    if summary.skipped_steps > 0 {
        tiles.push(("skipped steps".into(), summary.skipped_steps.to_string()));
    }
    for (name, value) in &summary.more {
        let text = match value {
            serde_json::Value::Number(n) => n.as_f64().map(number),
            serde_json::Value::Bool(b) => Some(b.to_string()),
            serde_json::Value::String(s) if s.len() < 24 => Some(s.clone()),
            _ => None,
        };
        if let Some(text) = text {
            tiles.push((name.replace('_', " "), text));
        }
    }
    html.push_str("<dl class=\"tiles\">\n");
    for (name, value) in tiles {
        let _ = writeln!(
            html,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escape(&name),
            escape(&value)
        );
    }
    html.push_str("</dl>\n");
}

fn content(content: &Content) -> String {
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

fn times(page: &Page) -> String {
    let progress = page.progress;
    let parts = [
        ("training steps", progress.stepping),
        ("evaluation", progress.evaluating),
        ("checkpoints", progress.saving),
    ];
    let all: f64 = parts.iter().map(|(_, s)| s).sum();
    let rows: Vec<Vec<String>> = parts
        .iter()
        .map(|(name, seconds)| {
            let share = 100.0 * seconds / all.max(f64::MIN_POSITIVE);
            vec![
                name.to_string(),
                format!("{seconds:.3}"),
                format!("{share:.1} %"),
            ]
        })
        .collect();
    table(&["phase", "seconds", "share"].map(String::from), &rows)
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
    table(&header, &rows)
}

/// Text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A number as people read it: four digits.
fn number(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    if x.fract() == 0.0 && x.abs() < 1e7 {
        return format!("{x}");
    }
    let digits = x.abs().log10().floor();
    if (-3.0..7.0).contains(&digits) {
        format!("{x:.*}", (3.0 - digits).max(0.0) as usize)
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

fn base64(bytes: &[u8]) -> String {
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
