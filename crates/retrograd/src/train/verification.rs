//! What the verification of a trained model found, for summary, report and command line.

use serde_json::{Value, json};

use crate::math;
use crate::verify::{Link, Report, Verdict};

/// The checks of a trained model ([`crate::verify::check_trained`]) and their time.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// The checks.
    pub report: Report,
    /// Seconds that they took.
    pub seconds: f64,
}

/// One link of the chain: all its checks together.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSummary {
    /// Which.
    pub link: Link,
    /// Its checks.
    pub checks: usize,
    /// Elements compared.
    pub elements: usize,
    /// The largest error as a part of its bound; none where nothing was compared.
    pub worst: Option<f64>,
    /// Fail where any failed, unchecked where any was not checked.
    pub verdict: Verdict,
    /// What its checks say beside: samples, kinks, why something is unchecked; each once.
    pub notes: Vec<String>,
}

impl Verification {
    /// Whether a check failed. What could not be checked has not failed.
    pub fn failed(&self) -> bool {
        self.report.counts().failed > 0
    }

    /// In a sentence: how many checks passed, failed, or could not be made.
    pub fn sentence(&self) -> String {
        let counts = self.report.counts();
        let mut text = format!(
            "{} of {} checks passed over {} elements",
            counts.passed,
            self.report.rows.len(),
            counts.elements
        );
        for (count, word) in [
            (counts.failed, "FAILED"),
            (counts.unchecked, "could not be checked"),
        ] {
            if count > 0 {
                text += &format!(", {count} {word}");
            }
        }
        text
    }

    /// The links in their order.
    pub fn links(&self) -> Vec<LinkSummary> {
        let mut links: Vec<LinkSummary> = Vec::new();
        for row in &self.report.rows {
            let index = match links.iter().position(|l| l.link == row.link) {
                Some(index) => index,
                None => {
                    links.push(LinkSummary {
                        link: row.link,
                        checks: 0,
                        elements: 0,
                        worst: None,
                        verdict: Verdict::Pass,
                        notes: Vec::new(),
                    });
                    links.len() - 1
                }
            };
            let link = &mut links[index];
            link.checks += 1;
            link.elements += row.elements;
            if !row.ratio.is_nan() {
                link.worst = Some(math::max(link.worst.unwrap_or(0.0), row.ratio));
            }
            link.verdict = match (link.verdict, row.verdict) {
                (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
                (Verdict::Unchecked, _) | (_, Verdict::Unchecked) => Verdict::Unchecked,
                _ => Verdict::Pass,
            };
            // A sample of every tensor has a note each; one says it for all. What the threads are
            // compared with is their link's own meaning.
            for note in row.note.split("; ") {
                let note = match note {
                    _ if row.link == Link::Threads => "",
                    note if note.starts_with("a sample of") => "a sample of every tensor",
                    note => note,
                };
                if !note.is_empty() && !link.notes.iter().any(|n| n == note) {
                    link.notes.push(note.to_string());
                }
            }
        }
        links
    }

    /// As `summary.json` has it.
    pub fn to_json(&self) -> Value {
        let counts = self.report.counts();
        let links = self.links().into_iter().map(|link| {
            json!({
                "link": link.link.name(),
                "checks": link.checks,
                "elements": link.elements,
                "worst": link.worst.filter(|w| w.is_finite()),
                "verdict": link.verdict,
                "notes": link.notes,
            })
        });
        json!({
            "checks": self.report.rows.len(),
            "passed": counts.passed,
            "failed": counts.failed,
            "unchecked": counts.unchecked,
            "elements": counts.elements,
            "seconds": self.seconds,
            "links": links.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Row;

    #[test]
    fn a_link_is_as_good_as_its_worst_check() {
        let row = |link, ratio: f64, verdict| Row {
            ratio,
            verdict,
            elements: 10,
            ..Row::unchecked("m", "t", link, "a sample of 8 of 90; why not")
        };
        let verification = Verification {
            report: Report {
                rows: vec![
                    row(Link::Differences, 0.5, Verdict::Pass),
                    row(Link::Differences, 0.2, Verdict::Unchecked),
                    row(Link::Cpu, 0.1, Verdict::Pass),
                    row(Link::Cpu, 3.0, Verdict::Fail),
                    row(Link::Threads, 0.0, Verdict::Pass),
                ],
            },
            seconds: 0.5,
        };
        let links = verification.links();
        let verdicts: Vec<_> = links.iter().map(|l| l.verdict).collect();
        assert_eq!(verdicts, [Verdict::Unchecked, Verdict::Fail, Verdict::Pass]);
        assert_eq!(links[0].worst, Some(0.5));
        assert_eq!(links[0].notes, ["a sample of every tensor", "why not"]);
        assert!(links[2].notes.is_empty());
        assert!(verification.failed());
        let json = verification.to_json();
        assert_eq!((&json["checks"], &json["passed"]), (&json!(5), &json!(3)));
        assert_eq!(json["failed"], 1);
    }
}
