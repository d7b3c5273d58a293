//! A drawing of one direction of traffic, from top to bottom: its source, the chains of the hook, and where
//! it goes from there.

use super::markup::Markup;

/// The width of a drawing, in its own units.
const WIDTH: i32 = 440;
/// The outer margin.
const EDGE: i32 = 12;
/// Where the right half begins.
const HALF: i32 = 232;
/// The width of a box in one half.
const BOX: i32 = WIDTH - EDGE - HALF;
/// The height of a line of text.
const LINE: i32 = 17;
/// Most characters of a text in one half, and in a line of code.
const HALF_CHARACTERS: usize = 31;
const CODE_CHARACTERS: usize = 46;

/// A line of text.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    pub(super) words: String,
    /// A class of the style sheet: its colour.
    pub(super) tone: &'static str,
}

/// A box with a title.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) title: &'static str,
    pub(super) lines: Vec<Text>,
}

/// A line in the box of the chains.
#[derive(Clone, Debug)]
pub(super) enum ChainLine {
    /// The name of a hook.
    Hook(&'static str),
    /// A chain, what it has counted, and whether its policy is to drop.
    Chain { name: String, counted: String, drops: bool },
    /// A foreign rule, where it stands, and what it has counted.
    Foreign { rule: Text, counted: String },
}

/// Kinds of traffic that go one way.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    pub(super) title: &'static str,
    pub(super) kinds: Vec<Text>,
}

impl Way {
    fn is_bad(&self) -> bool {
        self.kinds.iter().any(|kind| kind.tone == BAD)
    }

    fn height(&self) -> i32 {
        lines(fitted(&self.kinds).len() + 1) + 16
    }
}

/// Lines that fit: a text that is too long goes on in the next one.
fn fitted(texts: &[Text]) -> Vec<Text> {
    let mut lines = Vec::new();
    for Text { words, tone } in texts {
        let mut line = String::new();
        for word in words.split_inclusive(' ') {
            let is_full = line.chars().count() + word.trim_end().chars().count() > HALF_CHARACTERS;
            if is_full && !line.trim().is_empty() {
                lines.push(Text { words: std::mem::replace(&mut line, "\u{a0}\u{a0}".to_owned()), tone });
            }
            line.push_str(word);
        }
        lines.push(Text { words: line, tone });
    }
    lines
}

/// The tone of what is wrong.
pub(super) const BAD: &str = "bad";

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What is drawn, in words.
    pub(super) description: String,
    pub(super) source: Node,
    pub(super) chains: Vec<ChainLine>,
    pub(super) lost: Way,
    pub(super) captured: Way,
    pub(super) direct: Way,
    pub(super) proxy: Node,
    pub(super) destination: Node,
}

/// The height of so many lines.
fn lines(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX / (2 * LINE)).saturating_mul(LINE)
}

/// At most so many characters.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn text(page: &mut Markup, (x, y): (i32, i32), class: &str, words: &str, most: usize) {
    let (x, y) = (x.to_string(), y.to_string());
    page.element("text", &[("x", &x), ("y", &y), ("class", class)], |page| {
        let short = shortened(words, most);
        page.text(&short);
        if short != words {
            page.leaf("title", &[], words);
        }
    });
}

fn rectangle(page: &mut Markup, (x, y): (i32, i32), (width, height): (i32, i32), class: &str) {
    let [x, y, width, height] = [x, y, width, height].map(|number| number.to_string());
    let place = [("x", x.as_str()), ("y", &y), ("width", &width), ("height", &height)];
    page.void("rect", &[&place[..], &[("rx", "5"), ("class", class)]].concat());
}

/// A line with a tip at its end.
fn arrow(page: &mut Markup, from: (i32, i32), to: (i32, i32), class: &str) {
    const TIP: i32 = 7;
    let ((x, y), (to_x, to_y)) = (from, to);
    let is_down = x == to_x;
    let (end_x, end_y) = if is_down { (to_x, to_y - TIP) } else { (to_x - TIP, to_y) };
    let path = format!("M{x} {y}L{end_x} {end_y}");
    page.void("path", &[("d", &path), ("class", &format!("flow {class}"))]);
    let (left, right) = if is_down {
        ((to_x - 5, end_y - 1), (to_x + 5, end_y - 1))
    } else {
        ((end_x - 1, to_y - 5), (end_x - 1, to_y + 5))
    };
    let tip = format!("M{} {}L{to_x} {to_y}L{} {}Z", left.0, left.1, right.0, right.1);
    page.void("path", &[("d", &tip), ("class", &format!("tip {class}"))]);
}

fn node(page: &mut Markup, (x, y): (i32, i32), node: &Node, height: i32) {
    let bad = if node.lines.iter().any(|line| line.tone == BAD) { BAD } else { "" };
    rectangle(page, (x, y), (BOX, height), &format!("box {bad}"));
    text(page, (x + 10, y + 19), "title", node.title, HALF_CHARACTERS);
    for (number, line) in fitted(&node.lines).iter().enumerate() {
        let y = y + 19 + lines(number + 1);
        text(page, (x + 10, y), &format!("small {}", line.tone), &line.words, HALF_CHARACTERS);
    }
}

impl Node {
    fn height(&self) -> i32 {
        28 + lines(fitted(&self.lines).len())
    }
}

impl Lane {
    /// Draws it.
    pub(super) fn draw(&self, page: &mut Markup) {
        let source = self.source.height();
        let chains_at = 34 + source + 26;
        let chains = lines(self.chains.len().max(1)) + 14;
        let lost_at = chains_at + chains;
        let lost = if self.lost.kinds.is_empty() { 0 } else { lines(self.lost.kinds.len()) + 10 };
        let ways_at = lost_at + lost;
        let nodes_at = ways_at + self.captured.height().max(self.direct.height());
        let nodes = self.proxy.height().max(self.destination.height());
        let view = format!("0 0 {WIDTH} {}", nodes_at + nodes + EDGE);
        let names = format!("{0}-title {0}-text", self.id);
        page.element("svg", &[("viewBox", &view), ("role", "img"), ("aria-labelledby", &names)], |page| {
            page.leaf("title", &[("id", &format!("{}-title", self.id))], self.title);
            page.leaf("desc", &[("id", &format!("{}-text", self.id))], &self.description);
            text(page, (EDGE, 22), "title", self.title, HALF_CHARACTERS);
            let left = (WIDTH - BOX) / 2;
            node(page, (left, 34), &self.source, source);
            arrow(page, (WIDTH / 2, 34 + source), (WIDTH / 2, chains_at), "");
            self.draw_chains(page, chains_at, chains);
            draw_way(page, EDGE + 12, (lost_at, ways_at, nodes_at), &self.captured, "good");
            draw_way(page, HALF + 12, (lost_at, ways_at, nodes_at), &self.direct, "past");
            // Over the arrows.
            self.draw_lost(page, lost_at);
            node(page, (EDGE, nodes_at), &self.proxy, nodes);
            node(page, (HALF, nodes_at), &self.destination, nodes);
            if !self.captured.kinds.is_empty() {
                let (y, bad) = (nodes_at + nodes / 2, if self.captured.is_bad() { BAD } else { "good" });
                arrow(page, (EDGE + BOX, y), (HALF, y), bad);
            }
        });
        page.line();
    }

    fn draw_chains(&self, page: &mut Markup, at: i32, height: i32) {
        rectangle(page, (EDGE, at), (WIDTH - 2 * EDGE, height), "box");
        if self.chains.is_empty() {
            text(page, (EDGE + 10, at + 20), "small soft", "no rule", HALF_CHARACTERS);
        }
        for (number, line) in self.chains.iter().enumerate() {
            let y = at + 20 + lines(number);
            match line {
                ChainLine::Hook(name) => text(page, (EDGE + 10, y), "small title", name, HALF_CHARACTERS),
                ChainLine::Chain { name, counted, drops } => {
                    text(page, (EDGE + 20, y), "code", name, HALF_CHARACTERS);
                    let tone = if *drops { "warn" } else { "soft" };
                    let right = WIDTH - EDGE - 16;
                    text(page, (right, y), &format!("small end {tone}"), counted, HALF_CHARACTERS);
                }
                ChainLine::Foreign { rule: Text { words, tone }, counted } => {
                    let width = WIDTH - 2 * EDGE - 40;
                    rectangle(page, (EDGE + 30, y - 12), (width, LINE - 1), &format!("rule {tone}"));
                    text(page, (EDGE + 36, y), &format!("code {tone}"), words, CODE_CHARACTERS);
                    text(
                        page,
                        (EDGE + 24 + width, y),
                        &format!("small end {tone}"),
                        counted,
                        HALF_CHARACTERS,
                    );
                }
            }
        }
    }

    fn draw_lost(&self, page: &mut Markup, at: i32) {
        for (number, Text { words, tone }) in self.lost.kinds.iter().enumerate() {
            let (x, y) = (EDGE + 48, at + 20 + lines(number));
            let cross = format!("M{0} {2}L{1} {3}M{1} {2}L{0} {3}", x - 14, x - 6, y - 8, y);
            page.void("path", &[("d", &cross), ("class", &format!("flow {tone}"))]);
            text(page, (x, y), &format!("small halo {tone}"), words, CODE_CHARACTERS);
        }
    }
}

/// An arrow from the chains to a box, with the kinds of traffic that go there.
fn draw_way(page: &mut Markup, x: i32, (from, at, to): (i32, i32, i32), way: &Way, class: &str) {
    if way.kinds.is_empty() {
        return;
    }
    let tone = match (way.is_bad(), class) {
        (true, "past") => "bad past",
        (true, _) => BAD,
        (false, class) => class,
    };
    arrow(page, (x, from), (x, to), tone);
    text(page, (x + 12, at + 18), "small title", way.title, HALF_CHARACTERS);
    for (number, kind) in fitted(&way.kinds).iter().enumerate() {
        let y = at + 18 + lines(number + 1);
        text(page, (x + 12, y), &format!("small {}", kind.tone), &kind.words, HALF_CHARACTERS);
    }
}
