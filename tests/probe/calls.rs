//! System calls with any arguments.

use std::ffi::{CString, c_long};
use std::io::{self, Read};

use crate::{check, report, sys};

/// Makes the calls that standard input names, one a line: `NAME:NUMBER,ARGUMENT,…`, where an argument is a number,
/// `@` and a string, or `#` and words of memory in hexadecimal with colons between them.
pub fn from_stdin() {
    let mut lines = String::new();
    io::stdin().read_to_string(&mut lines).unwrap();
    for line in lines.lines() {
        let (name, call) = line.split_once(':').unwrap();
        report(name, make(call));
    }
}

fn make(call: &str) -> io::Result<i64> {
    let mut strings = Vec::new();
    let mut structures = Vec::new();
    let values: Vec<c_long> = call
        .split(',')
        .map(|argument| match argument.split_at(1.min(argument.len())) {
            ("@", text) => {
                strings.push(CString::new(text).unwrap());
                strings.last().unwrap().as_ptr() as c_long
            }
            ("#", words) => {
                let words: Vec<u64> =
                    words.split(':').map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
                structures.push(words);
                structures.last().unwrap().as_ptr() as c_long
            }
            _ => argument.parse().unwrap(),
        })
        .collect();
    let value = |index: usize| values.get(index).copied().unwrap_or(0);
    let result =
        unsafe { sys::syscall(value(0), value(1), value(2), value(3), value(4), value(5), value(6)) };
    check(result)
}
