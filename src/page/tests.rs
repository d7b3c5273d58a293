use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use super::Page;
use crate::cli::{self, Outcome};
use crate::commands::bundle::file as bundle;
use crate::explain::{ChainRule, LiveChain, PodReport, RunningProcess};
use crate::finding::{Finding, Problem};
use crate::kernel::process::SystemHost;
use crate::kernel::recording;
use crate::model::Family;
use crate::{commands, config};

/// The report about the pod of the documentation: a foreign rule decides first.
fn report() -> PodReport {
    let text = include_str!("../../docs/pod.json").to_owned();
    let bundle = bundle::read("pod.json", Ok(text)).unwrap();
    let words = ["istio-iptables", "explain", "--bundle", "pod.json", "--output", "html"].map(Into::into);
    let no_file = |_: &Path| -> std::io::Result<String> { Err(std::io::ErrorKind::NotFound.into()) };
    let Ok(Outcome::Run(mut raw)) = cli::parse(words, [], &mut std::io::empty(), &no_file) else {
        panic!("these options are accepted");
    };
    raw.complete(bundle.options);
    let resolved = config::resolve(&raw, &bundle.files).unwrap();
    recording::replay(bundle.facts);
    let report = commands::explain::pod_report(&SystemHost::new(None), resolved).unwrap();
    assert_eq!(recording::missing(), None, "the bundle has all that a page needs");
    let _ = recording::finish();
    report
}

fn html(report: PodReport) -> String {
    Page { report, subject: "Bundle pod.json".to_owned(), time: String::new() }.html()
}

fn parsed(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).unwrap_or_else(|error| panic!("{error}: {html}"))
}

fn with_class<'a>(page: &'a Document<'_>, class: &str) -> Vec<Node<'a, 'a>> {
    let has_class = |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|found| found == class))
    };
    page.descendants().filter(has_class).collect()
}

fn words(node: &Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

fn texts(page: &Document<'_>, name: &str) -> Vec<String> {
    page.descendants().filter(|node| node.has_tag_name(name)).map(|node| words(&node)).collect()
}

#[test]
fn page_begins_with_verdict_cause_and_fix() {
    let html = html(report());
    let page = parsed(&html);
    assert_eq!(texts(&page, "h1"), ["1 problem: a foreign rule decides over captured traffic"]);
    let [problems] = with_class(&page, "problems")[..] else { panic!("one list") };
    let problems: Vec<_> = problems.children().filter(Node::is_element).collect();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(problem.attribute("data-id"), Some("foreign-rule"));
    let said = words(problem);
    assert!(said.contains("-A OUTPUT -d 10.0.0.0/8 -j ACCEPT"), "{said}");
    assert!(said.contains("Fix iptables -t nat -D OUTPUT -d 10.0.0.0/8 -j ACCEPT"), "{said}");
}

#[test]
fn picture_has_the_foreign_rule_where_it_stands_and_the_way_of_its_packets() {
    let html = html(report());
    let page = parsed(&html);
    let drawn: Vec<String> = texts(&page, "text");
    let at = |words: &str| {
        drawn.iter().position(|text| text == words).unwrap_or_else(|| panic!("{words}: {drawn:?}"))
    };
    let rule = at("before ours: -d 10.0.0.0/8 -j ACCEPT");
    assert!(at("nat OUTPUT") < rule && rule < at("nat ISTIO_OUTPUT"), "{drawn:?}");
    let bad: Vec<String> = with_class(&page, "bad").iter().map(words).collect();
    for words in ["before ours: -d 10.0.0.0/8 -j ACCEPT", "app to 10.0.0.1:8080"] {
        assert!(bad.iter().any(|text| text == words), "{words}: {bad:?}");
    }
    for words in ["eth0: 10.1.0.5", "inbound 15006 TCP: uid 1337", "TCP 0.0.0.0:8080, uid 1000"] {
        at(words);
    }
}

#[test]
fn page_without_a_problem_has_no_list_and_nothing_red() {
    let mut report = report();
    report.problems.clear();
    report.probes.clear();
    report.verdict = "no problem found".to_owned();
    report.traffic.retain(|row| !row.is_unexpected());
    report.chains.iter_mut().for_each(|chain| chain.rules.retain(|rule| rule.why.is_some()));
    let html = html(report);
    let page = parsed(&html);
    assert!(with_class(&page, "problems").is_empty());
    let bad: Vec<_> = with_class(&page, "bad");
    // The one line that explains the colour.
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(with_class(&page, "tip").first().and_then(|tip| tip.attribute("class")), Some("tip good"));
}

#[test]
fn text_of_foreign_origin_is_text() {
    const HOSTILE: &str = "<script>alert(\"1\")</script><img src=x onerror='a()'>&amp;]]>--></style>\u{1b}[31m\u{ffff}\u{202e}`";
    let mut report = report();
    let rule = ChainRule { words: HOSTILE.to_owned(), why: None, is_cause: true, counts: None, more: 0 };
    report.chains.push(LiveChain {
        family: Family::V4,
        hook: Some("OUTPUT"),
        table: HOSTILE.to_owned(),
        chain: HOSTILE.to_owned(),
        drops: true,
        rules: vec![rule],
    });
    report.exempt.push(RunningProcess {
        pid: 7,
        name: HOSTILE.to_owned(),
        uid: 1337,
        gid: 1337,
        is_proxy: Some(false),
    });
    report.addresses[0].interface = HOSTILE.to_owned();
    report.problems.push(Finding::new(Problem::ForeignRule, HOSTILE).subject(HOSTILE));
    report.notes.push(HOSTILE.to_owned());
    report.traffic[0].kind = HOSTILE.to_owned();
    report.traffic[0].packet = HOSTILE.to_owned();
    report.traffic[0].reason.sentence = HOSTILE.to_owned();
    report.verdict = HOSTILE.to_owned();
    report.capture = HOSTILE.to_owned();
    let html = Page { report, subject: HOSTILE.to_owned(), time: HOSTILE.to_owned() }.html();
    let page = parsed(&html);
    let names: Vec<&str> = page.descendants().map(|node| node.tag_name().name()).collect();
    for name in ["script", "img"] {
        assert!(!names.contains(&name), "{name}");
    }
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains('\u{1b}'), "{html}");
    // `one_line` keeps quotes and markup as they are.
    let shown = "<script>alert(\"1\")</script><img src=x onerror='a()'>&amp;]]>--></style>\\u{1b}[31m\u{fffd}\\u{202e}`";
    assert_eq!(texts(&page, "h1"), [shown]);
    assert!(texts(&page, "li").iter().any(|text| text == shown));
    assert!(texts(&page, "dd").iter().any(|text| *text == format!("7 {shown}, uid 1337, gid 1337")));
}

#[test]
fn page_loads_nothing_and_runs_nothing() {
    let html = html(report());
    assert!(html.contains("content=\"default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;\""));
    for part in
        ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "onload", "javascript:"]
    {
        assert!(!html.contains(part), "{part}");
    }
}

#[test]
fn pictures_and_tables_have_their_names() {
    let html = html(report());
    let page = parsed(&html);
    let ids: Vec<&str> = page.descendants().filter_map(|node| node.attribute("id")).collect();
    let pictures: Vec<_> = page.descendants().filter(|node| node.attribute("role") == Some("img")).collect();
    assert_eq!(pictures.len(), 2);
    for picture in pictures {
        let names = picture.attribute("aria-labelledby").unwrap_or_default();
        assert!(names.split(' ').all(|name| ids.contains(&name)), "{names}: {ids:?}");
        let [description] =
            picture.children().filter(|node| node.has_tag_name("desc")).collect::<Vec<_>>()[..]
        else {
            panic!("one description")
        };
        assert!(words(&description).contains("; not captured: "), "{}", words(&description));
    }
    let unnamed = page.descendants().filter(|node| node.has_tag_name("svg")).filter(|node| {
        node.attribute("role") != Some("img") && node.attribute("aria-hidden") != Some("true")
    });
    assert_eq!(unnamed.count(), 0);
    for table in page.descendants().filter(|node| node.has_tag_name("table")) {
        assert!(table.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        let columns = table.descendants().filter(|node| node.has_tag_name("th")).count();
        assert!(
            table
                .descendants()
                .filter(|node| node.has_tag_name("th"))
                .all(|th| th.attribute("scope") == Some("col"))
        );
        for row in table.descendants().filter(|node| node.has_tag_name("tr")).skip(1) {
            assert_eq!(row.children().count(), columns, "{}", words(&row));
        }
    }
    assert_eq!(texts(&page, "h1").len(), 1);
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
}

#[test]
fn every_rule_has_its_reason_and_its_counter() {
    let report = report();
    let rules: usize = report.chains.iter().map(|chain| chain.rules.len()).sum();
    assert!(rules > 10, "{rules}");
    assert!(report.chains.iter().flat_map(|chain| &chain.rules).all(|rule| rule.counts.is_some()));
    let html = html(report);
    let page = parsed(&html);
    let said: Vec<String> = texts(&page, "tr");
    let has = |parts: [&str; 2]| said.iter().any(|row| parts.iter().all(|part| row.contains(part)));
    assert!(has(["-m owner --uid-owner 1337 -j RETURN", "the proxy's own traffic"]), "{said:?}");
    assert!(has(["-d 10.0.0.0/8 -j ACCEPT", "rule of another program"]), "{said:?}");
}
