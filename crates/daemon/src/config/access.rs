//! Reads `access`: the roles of uids and of certificate subjects.

use document::{At, Fields};
use identity::{Certified, Role, Roles};

/// Reads the roles of uids, and of the subjects that client certificates name.
pub(super) fn read(top: &Fields<'_>) -> (Vec<(u32, Roles)>, Vec<Certified>) {
    let mut granted: Vec<(u32, Roles)> = Vec::new();
    let mut certified: Vec<Certified> = Vec::new();
    for entry in top.items("access") {
        let entry = entry.fields(&["uid", "certificate", "roles", "files"]);
        if let Some(at) = entry.get("certificate") {
            if entry.get("uid").is_some() {
                entry.at("uid").problem("cannot be combined with `certificate`: an entry has one of the two");
            }
            let (roles, user) = (roles(&entry), entry.get("files").and_then(user));
            let Some(subject) = at.text().map(str::to_owned) else { continue };
            if certified.iter().any(|before| before.subject == subject) {
                at.problem(format!("{subject} is listed twice"));
            }
            certified.push(Certified { subject, roles, user });
            continue;
        }
        if entry.get("files").is_some() {
            entry.at("files").problem("is only for an entry with `certificate`: a uid uses its own files");
        }
        let uid = entry.required("uid").and_then(number);
        let roles = roles(&entry);
        let Some(uid) = uid else { continue };
        if granted.iter().any(|(before, _)| *before == uid) {
            entry.at("uid").problem(format!("{uid} is listed twice"));
        }
        granted.push((uid, roles));
    }
    (granted, certified)
}

pub(super) fn roles(entry: &Fields<'_>) -> Roles {
    let named = entry.required("roles").map(At::items).unwrap_or_default();
    named.iter().filter_map(|at| at.one_of(&Role::ALL)).fold(Roles::none(), Roles::with)
}

/// Reads the uid and gid whose files a remote principal may use.
pub(super) fn user(at: &At<'_>) -> Option<(u32, u32)> {
    let fields = at.fields(&["uid", "gid"]);
    let (uid, gid) = (fields.required("uid").and_then(number), fields.required("gid").and_then(number));
    Some((uid?, gid?))
}

fn number(at: &At<'_>) -> Option<u32> {
    u32::try_from(at.number(0..=u32::MAX.into())?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keys, parse};

    #[test]
    fn a_certificate_has_roles_and_perhaps_a_user_s_files() {
        let text = "access: [{ uid: 7, roles: [auditor] }, { certificate: ci, roles: [orchestrator], files: { uid: 7, gid: 8 } }]";
        let config = parse(text).unwrap();
        assert_eq!((config.access.len(), config.certified.len()), (1, 1));
        assert_eq!((config.certified[0].subject.as_str(), config.certified[0].user), ("ci", Some((7, 8))));
        let printed = config.to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
        let wrong = "access: [{ certificate: ci, uid: 7, roles: [] }, { certificate: ci, roles: [], files: { uid: 7 } },
            { uid: 7, roles: [], files: {} }, { roles: [] }]";
        assert_eq!(
            keys(wrong),
            ["access[0].uid", "access[1].files", "access[1].certificate", "access[2].files", "access[3]"]
        );
    }
}
