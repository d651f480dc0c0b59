//! The HTML page as a tree. An XML parser reads it, told what is special in HTML: raw text, elements without an end, and
//! attributes without a value.

use std::collections::BTreeMap;

use pyobs_export::{Format, Options, escape, export};
use pyobs_model::Model;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

#[derive(Clone, Debug, Default)]
pub struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub children: Vec<Element>,
    /// Includes the text of elements inside.
    pub text: String,
}

impl Element {
    fn of(tag: &BytesStart<'_>) -> Self {
        let attribute = |it: quick_xml::events::attributes::Attribute<'_>| {
            (
                String::from_utf8(it.key.as_ref().to_vec()).unwrap(),
                it.normalized_value(XmlVersion::Implicit1_0).unwrap().into_owned(),
            )
        };
        let attributes = tag.html_attributes().map(|it| attribute(it.unwrap())).collect();
        Self { name: name(tag.name().as_ref()), attributes, ..Self::default() }
    }

    /// This element and all inside it, in the order of their start tags.
    pub fn all(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.children.iter().flat_map(Self::all)).collect()
    }

    pub fn named(&self, name: &str) -> Vec<&Self> {
        self.all().into_iter().filter(|it| it.name == name).collect()
    }

    pub fn of_class(&self, class: &str) -> Vec<&Self> {
        let has = |it: &&Self| it.attribute("class").is_some_and(|it| it.split(' ').any(|it| it == class));
        self.all().into_iter().filter(has).collect()
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    #[track_caller]
    pub fn section(&self, id: &str) -> &Self {
        let found: Vec<&Self> = self.named("section").into_iter().filter(|it| it.attribute("id") == Some(id)).collect();
        assert_eq!(found.len(), 1, "{id}");
        found[0]
    }

    /// The texts of a column, sorted. The section has one table.
    #[track_caller]
    pub fn cells(&self, section: &str, column: &str) -> Vec<&str> {
        let section = self.section(section);
        let at = section.named("th").iter().position(|it| it.text == column).unwrap();
        let rows = section.named("tbody")[0].children.iter();
        let mut cells: Vec<&str> = rows.map(|row| row.children[at].text.as_str()).collect();
        cells.sort_unstable();
        cells
    }
}

fn name(bytes: &[u8]) -> String {
    str::from_utf8(bytes).unwrap().to_owned()
}

/// Exports and parses a page. Fails unless its elements nest and all its characters are safe to show.
#[track_caller]
pub fn page(model: &Model, options: &Options) -> Element {
    let mut out = Vec::new();
    export(model, Format::Html, options, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert_eq!(page.chars().find(|c| *c != '\n' && escape::is_unsafe(*c)), None);
    parse(page.strip_prefix("<!DOCTYPE html>").unwrap())
}

#[track_caller]
fn parse(mut page: &str) -> Element {
    let mut open = vec![Element::default()];
    let mut reader = reader(page);
    loop {
        let event = reader.read_event().unwrap();
        let last = open.last_mut().unwrap();
        match event {
            Event::Start(tag) => {
                let element = Element::of(&tag);
                let (is_raw, is_void) = (["script", "style"].contains(&&*element.name), element.name == "meta");
                open.push(element);
                if is_raw {
                    // A browser ends raw text at the first end tag, even inside a string of the script.
                    let raw = &page[reader.buffer_position() as usize..];
                    let length = raw.find("</").unwrap();
                    open.last_mut().unwrap().text = raw[..length].to_owned();
                    page = &raw[length..];
                    reader = self::reader(page);
                } else if is_void {
                    close(&mut open, "meta");
                }
            }
            Event::End(tag) => close(&mut open, &name(tag.name().as_ref())),
            Event::Text(text) => last.text += &text.decode().unwrap(),
            Event::GeneralRef(name) => {
                last.text += &quick_xml::escape::unescape(&format!("&{};", name.decode().unwrap())).unwrap();
            }
            Event::Eof => break,
            other => panic!("{other:?}"),
        }
    }
    let [document] = &open[..] else { panic!("<{}> does not end", open.last().unwrap().name) };
    document.clone()
}

fn reader(page: &str) -> Reader<&[u8]> {
    let mut reader = Reader::from_str(page);
    // The parser cannot know which elements have no end tag. `close()` checks the names.
    (reader.config_mut().check_end_names, reader.config_mut().allow_unmatched_ends) = (false, true);
    reader
}

#[track_caller]
fn close(open: &mut Vec<Element>, name: &str) {
    let element = open.pop().unwrap();
    assert_eq!(element.name, name);
    let parent = open.last_mut().unwrap();
    parent.text += &element.text;
    parent.children.push(element);
}
