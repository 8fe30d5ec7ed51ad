//! Gives this process another identity, with no privilege left but those that are named, and no way back.

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, umask};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::{SetupError, step};

/// Drops all privileges, and takes this identity if there is one.
///
/// Uid 0 is allowed: a root without capabilities has only the rights of a file's owner.
pub fn drop_all(identity: Option<(Uid, Gid)>) -> Result<(), SetupError> {
    drop_all_but(CapabilitySet::empty(), identity)
}

/// Drops all privileges but these capabilities, and takes this identity if there is one.
///
/// The process can never have more again: not by a program, and not by another identity.
pub fn drop_all_but(kept: CapabilitySet, identity: Option<(Uid, Gid)>) -> Result<(), SetupError> {
    empty_bounding_set().map_err(step("emptying the bounding set"))?;
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            // A new identity changes no capability: they are set below.
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
    .map_err(step("locking the secure bits"))?;
    if let Some((uid, gid)) = identity {
        set_thread_groups(&[]).map_err(step("dropping groups"))?;
        set_thread_res_gid(gid, gid, gid).map_err(step("taking the group"))?;
        set_thread_res_uid(uid, uid, uid).map_err(step("taking the uid"))?;
    }
    clear_ambient_capability_set().map_err(step("clearing ambient capabilities"))?;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
        .map_err(step("dropping capabilities"))?;
    set_no_new_privs(true).map_err(step("no_new_privs"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("becoming non-dumpable"))?;
    umask(Mode::WGRP | Mode::WOTH);
    Ok(())
}

/// Drops the privileges of a process that has none, or a few in a container, and may not change its identity.
pub fn drop_what_there_is() -> Result<(), SetupError> {
    // A failure is harmless: this process executes no further program, which alone the bounding set would limit.
    let _ = empty_bounding_set();
    let none = CapabilitySet::empty();
    let dropped = clear_ambient_capability_set()
        .and_then(|()| {
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        })
        .and_then(|()| set_no_new_privs(true))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    dropped.map_err(step("dropping capabilities"))?;
    umask(Mode::WGRP | Mode::WOTH);
    Ok(())
}

fn empty_bounding_set() -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // After the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
