use proptest::prelude::*;

use super::*;

const KEY: &str = "k-3y/with+\"odd\"&chars";

fn hide(texts: &[&str]) -> Hide {
    Hide::new(texts.iter().map(|text| Zeroizing::new(text.as_bytes().to_vec())).collect())
}

/// Passes a body in these pieces. Returns all of it.
fn pass<'a>(mut hide: Hide, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        all.extend_from_slice(&hide.push(Bytes::copy_from_slice(piece)));
    }
    all.extend_from_slice(&hide.finish());
    all
}

fn pass_text(texts: &[&str], body: &str) -> String {
    String::from_utf8(pass(hide(texts), [body.as_bytes()])).unwrap()
}

#[test]
fn a_text_is_replaced_by_as_many_stars() {
    assert_eq!(pass_text(&["secret"], "the secret, secretsecret!"), "the ******, ************!");
    assert_eq!(pass_text(&["secret"], "the Secret is secre"), "the Secret is secre");
}

#[test]
fn texts_that_overlap_or_contain_each_other_leave_no_part() {
    assert_eq!(pass_text(&["abcd", "cdef"], "xabcdefx"), "x******x");
    assert_eq!(pass_text(&["abcd", "abcdefgh"], "abcdefgh abcdefg"), "******** ****efg");
    assert_eq!(pass_text(&["abab"], "ababab ab"), "****** ab");
}

#[test]
fn texts_of_less_than_four_bytes_are_ignored() {
    assert_eq!(pass_text(&["", "a", "abc"], "abc"), "abc");
    assert_eq!(pass_text(&["abcd"], "abcd"), "****");
}

#[test]
fn each_form_of_a_text_is_found() {
    for form in [
        KEY,
        "ay0zeS93aXRoKyJvZGQiJmNoYXJz",
        "k-3y%2Fwith%2B%22odd%22%26chars",
        "k-3y%2fwith%2b%22odd%22%26chars",
        "k-3y/with+\\\"odd\\\"&chars",
        "k-3y\\/with+\\\"odd\\\"&chars",
        "k-3y/with+\\\"odd\\\"\\u0026chars",
    ] {
        let expected = format!("<{}>", "*".repeat(form.len()));
        assert_eq!(pass_text(&[KEY], &format!("<{form}>")), expected, "{form}");
    }
    // Both alphabets of base64, with and without padding.
    for form in ["Pz8/Pj4+Pw==", "Pz8_Pj4-Pw==", "Pz8/Pj4+Pw", "Pz8_Pj4-Pw"] {
        let expected = form.replace(|character: char| character != '=', "*");
        assert_eq!(pass_text(&["???>>>?"], form), expected, "{form}");
    }
    assert_eq!(pass_text(&["dXNlcjphYg=="], "dXNlcjphYg dXNlcjphYg=="), "********** ************");
    assert_eq!(pass_text(&["ab=="], "ab ab=="), "ab ****");
    for form in ["it's/a/key", "it%27s%2Fa%2Fkey", "it's%2Fa%2Fkey"] {
        assert_eq!(pass_text(&["it's/a/key"], form), "*".repeat(form.len()));
    }
}

#[test]
fn a_header_is_replaced_and_the_state_of_the_body_stays() {
    let mut hide = hide(&["secret"]);
    assert_eq!(hide.push(Bytes::from_static(b"a sec")), "a ");
    assert_eq!(hide.header(b"/login?key=secret&again=secret").unwrap(), b"/login?key=******&again=******");
    assert_eq!(hide.header(b"ret"), None);
    assert_eq!(hide.header(b""), None);
    assert_eq!(hide.push(Bytes::from_static(b"ret.")), "");
    assert_eq!(hide.finish(), "******.");
}

#[test]
fn bytes_wait_only_until_one_comes_that_no_text_has() {
    let mut hide = hide(&["secret"]);
    for (piece, passed) in [
        ("data: {}\n\n", "data: {}\n\n"),
        ("data: se", "data: "),
        ("ven\n\n", "seven\n\n"),
        ("secre", ""),
        // The longest form, that in base64, has eight characters.
        ("secre", "sec"),
        ("t\n", "re******\n"),
        ("s", ""),
        ("", ""),
    ] {
        assert_eq!(hide.push(Bytes::from_static(piece.as_bytes())), passed, "{piece}");
    }
    assert_eq!(hide.finish(), "s");
}

#[test]
fn the_number_of_bytes_that_wait_says_nothing_about_a_text() {
    for size in 1..40 {
        let lengths = ["s", "secre", "secret", "c2Vjcm", "x"].map(|end| {
            let body = format!("{:.<size$}{end:.>8}", "begin ");
            let mut hide = hide(&["secret"]);
            let (first, second) = body.split_at(size);
            [first, second].map(|piece| hide.push(Bytes::copy_from_slice(piece.as_bytes())).len())
        });
        assert!(lengths.iter().all(|one| *one == lengths[0]), "{lengths:?}");
    }
}

#[test]
fn after_a_pause_the_bytes_pass_and_the_rest_of_a_text_is_replaced() {
    let mut hide = hide(&["secret"]);
    assert_eq!(hide.push(Bytes::from_static(b"a sec")), "a ");
    assert_eq!(hide.release(), "sec");
    assert_eq!(hide.release(), "");
    assert_eq!(hide.push(Bytes::from_static(b"ret secret\n")), "*** ******\n");
    assert_eq!(hide.finish(), "");
}

#[test]
fn a_body_without_a_text_is_not_copied() {
    let body = Bytes::from(vec![b'\n'; 1024]);
    let passed = hide(&["secret"]).push(body.clone());
    assert_eq!(passed.as_ptr(), body.as_ptr());
    assert_eq!(passed, body);
}

/// Replaces what it finds by comparing everywhere.
fn plainly(forms: &[Vec<u8>], body: &[u8]) -> Vec<u8> {
    let mut masked = body.to_vec();
    for form in forms.iter().filter(|form| form.len() >= SHORTEST) {
        for start in (0..body.len()).filter(|start| body[*start..].starts_with(form)) {
            masked[start..start + form.len()].fill(MASK);
        }
    }
    masked
}

proptest! {
    #[test]
    fn any_division_gives_the_same_as_comparing_everywhere(
        texts in prop::collection::vec("[ab/]{0,6}", 0..4),
        body in prop::collection::vec("[ab]{1,3}|/|\\\\/|%2F|%2f|YWIv|YWFhYQ|=", 0..20),
        cuts in prop::collection::vec(1_usize..7, 1..20),
    ) {
        let body = body.concat().into_bytes();
        let mut forms: Vec<Vec<u8>> = Vec::new();
        for text in &texts {
            if text.len() >= SHORTEST {
                forms.push(text.clone().into_bytes());
                forms.extend(encoded(text.as_bytes()).iter().map(|form| form.to_vec()));
            }
        }
        let expected = plainly(&forms, &body);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        prop_assert_eq!(pass(hide(&texts), [&body[..]]), expected.clone());
        let (mut pieces, mut rest) = (Vec::new(), &body[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(pass(hide(&texts), pieces), expected.clone());
        prop_assert_eq!(hide(&texts).header(&body).unwrap_or_else(|| body.clone()), expected);
    }
}
