//! The report about a live pod as a page: one file of HTML without scripts, which loads nothing. It is a
//! third form of the values that text and JSON have, and decides nothing itself.

mod facts;
mod lane;
mod markup;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::explain::{PodReport, Row};
use crate::finding::Finding;
use crate::model::Family;
use markup::Markup;

/// A page and what its title says.
#[derive(Clone, Debug)]
pub struct Page {
    /// The report.
    pub report: PodReport,
    /// The pod, as the user named it.
    pub subject: String,
    /// The time of the report; empty if it is not known.
    pub time: String,
}

impl Page {
    /// The page as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = Markup::default();
        page.own("<!DOCTYPE html>\n");
        page.element("html", &[("lang", "en")], |page| {
            self.head(page);
            page.line();
            page.element("body", &[], |page| self.body(page));
        });
        page.line();
        page.finish()
    }

    fn head(&self, page: &mut Markup) {
        page.element("head", &[], |page| {
            page.void("meta", &[("charset", "utf-8")]);
            page.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            // The browser refuses everything that the page does not have: a second line of defence behind
            // escaping.
            let policy = "default-src 'none'; style-src 'unsafe-inline'";
            page.void("meta", &[("http-equiv", "Content-Security-Policy"), ("content", policy)]);
            page.leaf("title", &[], &format!("{}: {}", self.subject, self.report.verdict));
            page.element("style", &[], |page| page.own(include_str!("style.css")));
        });
    }

    fn body(&self, page: &mut Markup) {
        let PodReport { verdict, problems, .. } = &self.report;
        page.element("header", &[], |page| {
            let time = if self.time.is_empty() { String::new() } else { format!(", {}", self.time) };
            page.leaf("p", &[], &format!("{}{time}", self.subject));
            let tone = if problems.is_empty() { "good" } else { "bad" };
            page.element("h1", &[], |page| {
                dot(page, tone);
                page.text(verdict);
            });
            if !self.report.capture.is_empty() {
                page.leaf("p", &[], &self.report.capture);
            }
        });
        page.line();
        page.element("main", &[], |page| {
            list(page, problems);
            picture::picture(page, &self.report);
            traffic(page, &self.report);
            facts::notes(page, &self.report);
            facts::rules(page, &self.report);
            facts::facts(page, &self.report);
        });
        page.line();
        let version = concat!("istio-iptables ", env!("CARGO_PKG_VERSION"));
        page.leaf("footer", &[], version);
    }
}

/// A mark before the verdict.
fn dot(page: &mut Markup, tone: &str) {
    page.element("svg", &[("viewBox", "0 0 10 10"), ("aria-hidden", "true")], |page| {
        page.void("circle", &[("cx", "5"), ("cy", "5"), ("r", "5"), ("class", &format!("tip {tone}"))]);
    });
}

/// The problems, the most harmful first.
fn list(page: &mut Markup, problems: &[Finding]) {
    if problems.is_empty() {
        return;
    }
    page.element("section", &[("aria-label", "Problems")], |page| {
        page.element("ol", &[("class", "problems")], |page| {
            for (number, finding) in problems.iter().enumerate() {
                let spec = finding.problem.spec();
                let place = format!("problem-{}", number + 1);
                page.element("li", &[("id", &place), ("data-id", spec.id)], |page| {
                    page.element("h3", &[], |page| {
                        page.text(&capitalized(spec.title));
                        page.text(" ");
                        page.leaf("code", &[], spec.id);
                    });
                    page.element("p", &[], |page| page.sentence(&finding.cause));
                    page.element("p", &[("class", "fix")], |page| {
                        page.leaf("b", &[], "Fix");
                        page.text(" ");
                        page.sentence(&finding.fix());
                    });
                });
            }
        });
    });
    page.line();
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Rows that differ in the family alone, as one.
struct Kind<'a> {
    row: &'a Row,
    /// What it is called: with its family, if the other one differs.
    name: String,
}

fn kinds<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Kind<'a>> {
    let mut kinds: Vec<Kind<'a>> = Vec::new();
    for row in rows {
        let of = |row: &Row| (row.verdict, row.reason.sentence.clone(), row.is_unexpected());
        let at = kinds.iter().rposition(|kind| kind.row.kind == row.kind);
        match at.and_then(|at| Some((at, kinds.get_mut(at)?))) {
            Some((_, kind)) if of(kind.row) == of(row) => {}
            Some((at, kind)) => {
                kind.name = of_family(kind.row);
                // Beside the same kind of the other family.
                kinds.insert(at + 1, Kind { row, name: of_family(row) });
            }
            None => kinds.push(Kind { row, name: row.kind.clone() }),
        }
    }
    kinds
}

fn of_family(row: &Row) -> String {
    format!("{} ({})", row.kind, row.family)
}

/// A table with the titles of its columns. On a narrow screen its rows are blocks, which are still rows of a
/// table.
fn table(page: &mut Markup, label: &str, titles: &[(&str, &str)], rows: impl FnOnce(&mut Markup)) {
    page.element("table", &[("role", "table"), ("aria-label", label)], |page| {
        page.element("thead", &[("role", "rowgroup")], |page| {
            page.element("tr", &[("role", "row")], |page| {
                for (title, class) in titles {
                    let attributes = [("role", "columnheader"), ("scope", "col"), ("class", *class)];
                    page.leaf("th", &attributes, title);
                }
            });
        });
        page.element("tbody", &[("role", "rowgroup")], rows);
    });
    page.line();
}

/// A cell of a table.
fn cell(page: &mut Markup, class: &str, content: impl FnOnce(&mut Markup)) {
    page.element("td", &[("role", "cell"), ("class", class)], content);
}

/// Families in words.
fn families(families: &BTreeSet<Family>) -> String {
    let names: Vec<String> = families.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn traffic(page: &mut Markup, report: &PodReport) {
    let of: BTreeSet<Family> = report.traffic.iter().map(|row| row.family).collect();
    page.leaf("h2", &[], &format!("Traffic ({})", families(&of)));
    let titles = [("Kind of traffic", ""), ("Outcome", ""), ("Because", "")];
    table(page, "Kinds of traffic", &titles, |page| {
        for Kind { row, name } in kinds(report.traffic.iter()) {
            let class = if row.is_unexpected() { "bad" } else { "" };
            page.element("tr", &[("role", "row"), ("class", class), ("title", &row.packet)], |page| {
                cell(page, "", |page| page.text(&name));
                cell(page, "outcome", |page| {
                    page.text(if row.is_unexpected() { "! " } else { "" });
                    page.text(&row.verdict.outcome());
                });
                cell(page, "wide last", |page| page.sentence(&row.reason.sentence));
            });
        }
    });
}
