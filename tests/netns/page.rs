//! `explain --live -o html`: the page has what the text has, and text from the pod stays text.

use std::fs;
use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use crate::lab::program::{Program, tool};
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        page_of_a_bundle_is_that_of_the_pod,
        markup_in_a_comment_is_text
    ]
);

const OPTIONS: [&str; 4] = ["-i", "*", "-b", "*"];

/// With the program that writes pages in the search path: in packages it is beside the other one.
fn with_report_program(program: Program) -> Program {
    let folder = Path::new(env!("CARGO_BIN_EXE_istio-iptables-report")).parent().unwrap();
    program.env("PATH", &format!("/usr/sbin:/usr/bin:/sbin:/bin:{}", folder.display()))
}

/// The page about a pod.
pub(crate) fn page(pod: &Pod) -> String {
    let program = pod.bare_istio_iptables(&["explain", "--live", "-o", "html"]);
    with_report_program(program).run().succeeded().stdout()
}

pub(crate) fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}: {page}"))
}

/// The text of an element.
pub(crate) fn words(node: &Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

/// The first line, and id and words of each problem.
pub(crate) fn verdict_and_problems(page: &Document<'_>) -> (String, Vec<[String; 2]>) {
    let verdict = page.descendants().find(|node| node.has_tag_name("h1")).map(|title| words(&title));
    let list = page.descendants().find(|node| node.attribute("class") == Some("problems"));
    let items = list.into_iter().flat_map(|list| list.children().filter(Node::is_element));
    let problem =
        |item: Node<'_, '_>| [item.attribute("data-id").unwrap_or_default().to_owned(), words(&item)];
    (verdict.unwrap_or_default(), items.map(problem).collect())
}

/// What a page has behind its first line, which names the pod and the time.
fn body(page: &str) -> &str {
    page.split_once("<h1>").unwrap_or_else(|| panic!("{page}")).1
}

fn page_of_a_bundle_is_that_of_the_pod(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    // Packets of the kernel's own are counted at any time.
    let quiet = (0..40).find_map(|_| {
        let before = page(&pod);
        let bundle = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
        (body(&before) == body(&page(&pod))).then_some((before, bundle))
    });
    let (there, bundle) = quiet.expect("a page without a packet meanwhile");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bundle).unwrap();
    let path = file.path().to_str().unwrap();
    let asked = with_report_program(Program::anywhere(&["explain", "--bundle", path, "-o", "html"]));
    let here = asked.run().succeeded().stdout();
    assert_eq!(body(&here), body(&there));
    let page = parsed(&here);
    let drawn: Vec<String> =
        page.descendants().filter(|node| node.has_tag_name("text")).map(|node| words(&node)).collect();
    for words in
        ["PREROUTING", "OUTPUT", "nat ISTIO_OUTPUT", "inbound 15006 TCP: uid", "client to the app, port 8080"]
    {
        assert!(drawn.iter().any(|text| text.contains(words)), "{words}: {drawn:?}");
    }
    let rows = page.descendants().filter(|node| node.has_tag_name("tr"));
    let counted = rows.filter(|row| !words(row).contains('?')).count();
    assert!(counted > 20, "{counted} rows: {here}");
}

fn markup_in_a_comment_is_text(fixture: Fixture) {
    const COMMENT: &str = "<img/src=x/onerror=a()>&<b>";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let words = [
        "-t",
        "nat",
        "-I",
        "OUTPUT",
        "-d",
        "10.0.0.0/8",
        "-m",
        "comment",
        "--comment",
        COMMENT,
        "-j",
        "DNAT",
        "--to-destination",
        "10.9.9.9",
    ];
    let table = format!(
        "table ip agent {{ chain o {{ type filter hook output priority -110; ip daddr 10.0.0.0/8 drop comment \"{COMMENT}\"; }}; }}"
    );
    pod.namespace.run(|| match fixture.backend {
        Backend::Native => tool("nft", &["-f", "-"], &table),
        Backend::IptablesNft | Backend::IptablesLegacy => {
            tool(&fixture.backend.tool(Family::V4, ""), &words, "")
        }
    });
    let page = page(&pod);
    let document = parsed(&page);
    assert!(
        !document.descendants().any(|node| node.has_tag_name("img") || node.has_tag_name("script")),
        "{page}"
    );
    let (_, problems) = verdict_and_problems(&document);
    assert!(!problems.is_empty(), "{page}");
    if fixture.backend != Backend::Native {
        assert!(problems.iter().any(|[_, words]| words.contains(COMMENT)), "{problems:?}");
    }
    let red = document.descendants().filter(|node| node.has_tag_name("text")).filter(|node| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|class| class == "bad"))
    });
    let red: Vec<String> = red.map(|node| crate::page::words(&node)).collect();
    assert!(red.iter().any(|words| words.contains("10.0.0.0/8")), "{red:?}");
}
