//! Within a crate, arrows point down: no circle of modules that have the same parent. A parent composes its children, and
//! they use what it declares; children that use each other are one module, or lack another below them.
//!
//! This reads paths as the compiler does (`crate`, `self`, `super`, children, trees of `use`), and follows what a module
//! passes on with `use`. It does not look into macros.

use std::collections::{BTreeMap, BTreeSet};

use super::crates::{Module, sources};
use super::root;

/// The paths in a text; of each that a `use` has, also its name from there on.
fn paths(text: &str) -> Vec<(Vec<String>, Option<String>)> {
    let mut found: Vec<(Vec<String>, Option<String>)> = Vec::new();
    let (mut trees, mut word, mut before, mut within_use) =
        (Vec::<String>::new(), String::new(), String::new(), false);
    let code =
        text.lines().filter_map(|line| line.split("//").next()).flat_map(|line| line.chars().chain(['\n']));
    for sign in code {
        if sign.is_alphanumeric() || matches!(sign, '_' | ':') {
            word.push(sign);
            continue;
        }
        let whole = [trees.last().map_or("", String::as_str), &word].concat();
        if sign == '{' && word.ends_with("::") {
            trees.push(whole);
        } else if before == "as" && within_use {
            found.last_mut().unwrap().1 = Some(word.clone());
        } else if word != "as" && !word.is_empty() && (within_use || whole.contains("::")) {
            let path: Vec<String> = whole.split("::").map(str::to_owned).collect();
            let name = path.last().cloned().filter(|_| within_use);
            found.push((path, name));
        }
        if sign == '}' {
            trees.pop();
        }
        within_use = (within_use || word == "use") && sign != ';';
        if !word.is_empty() {
            before = std::mem::take(&mut word);
        }
    }
    found
}

/// Where a path leads that a module has, if it is one of this crate.
fn absolute(module: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let above = module[..module.len().checked_sub(1)?].to_vec();
            let goes_on = rest.first().is_some_and(|next| next == "super");
            if goes_on { absolute(&above, rest, modules) } else { Some([&above, rest].concat()) }
        }
        child => modules
            .contains_key(&[module.as_slice(), &[child.to_owned()]].concat())
            .then(|| [module, path].concat()),
    }
}

/// The modules that reach themselves, each with those of the same parent that it uses.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<(Module, BTreeSet<Module>)> {
    let (mut passed_on, mut uses) = (BTreeMap::new(), Vec::new());
    for (module, text) in modules {
        for (path, name) in paths(text) {
            let Some(to) = absolute(module, &path, modules) else { continue };
            passed_on.extend(name.map(|name| ([module.as_slice(), &[name]].concat(), to.clone())));
            uses.push((module, to));
        }
    }
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, mut to) in uses {
        let (mut length, mut hops) = (1, 0);
        while length <= to.len() && hops < 16 {
            match passed_on.get(&to[..length]) {
                _ if modules.contains_key(&to[..length]) => length += 1,
                Some(of) => (to, length, hops) = ([of, &to[length..]].concat(), 1, hops + 1),
                None => break,
            }
        }
        let same = module.iter().zip(&to[..length - 1]).take_while(|(a, b)| a == b).count();
        if same < module.len() && same < length - 1 {
            arrows.entry(module[..=same].to_vec()).or_default().insert(to[..=same].to_vec());
        }
    }
    let reaches_itself = |from: &Module| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            let next = arrows.get(module).into_iter().flatten();
            left.extend(next.filter(|module| reached.insert(*module)));
        }
        reached.contains(from)
    };
    arrows.iter().filter(|(module, _)| reaches_itself(module)).map(|(a, b)| (a.clone(), b.clone())).collect()
}

#[test]
fn no_modules_of_one_parent_use_each_other_in_a_circle() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for directory in crates.chain([root().join("clients/rust")]) {
        let source = directory.join("src");
        let found = if source.is_dir() { circles(&sources(&source, &[])) } else { Vec::new() };

        assert_eq!(found, [], "{}: move what they share below them", source.display());
    }
}

#[test]
fn a_circle_is_found_however_its_paths_are_written() {
    let modules = |a: &str, b: &str| {
        let of = |names: &[&str], text: &str| {
            (names.iter().map(|name| (*name).to_owned()).collect(), text.to_owned())
        };
        let root = of(&[], "mod a; mod b; pub use a::{Y as Z, c::V}; use a::c;");
        let c = of(&["a", "c"], "use super::Q; use crate::Z; // super::super::b");
        circles(&BTreeMap::from([root, of(&["a"], a), c, of(&["b"], b)])).len()
    };
    for (a, b) in [
        ("use crate::b::X;", "use super::a::Y;"),
        ("use crate::{\n    x, b::{self, X},\n};", "fn f() -> u8 { crate::a::y() }"),
        ("mod c;\nfn f() { super::b::f::<u8>() }", "use crate::Z;"),
        ("use super::b as d;", "use crate::c::{V, W};"),
    ] {
        assert_eq!(modules(a, b), 2, "{a} {b}");
        assert_eq!(modules(a, "use crate::P; /// [`crate::a`]"), 0, "{a}");
        assert_eq!(modules("mod c; use c::V; struct Q;", b), 0, "{b}");
    }
}
