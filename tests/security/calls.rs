//! C1: system calls that commands may not make, with and without a writable root.

use crate::attempts::{self, REFUSED, all_refused, attempt};
use crate::inside::every;

#[tokio::test]
async fn c1_sockets_of_other_families_cannot_be_made() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_other_socket(&mut inside).await;
    }
}

#[tokio::test]
async fn c1_no_capability_and_no_other_user_can_be_obtained() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_other_capability(&mut inside).await;
        let attempts = [
            attempt("setuid", libc::SYS_setuid, "0", REFUSED),
            attempt("setgid", libc::SYS_setgid, "0", REFUSED),
            attempt("setresuid", libc::SYS_setresuid, "0,0,0", REFUSED),
            attempt("setresgid", libc::SYS_setresgid, "0,0,0", REFUSED),
            attempt("setreuid", libc::SYS_setreuid, "0,0", REFUSED),
            attempt("setgroups", libc::SYS_setgroups, "1,#0", REFUSED),
            attempt("setuid to the owner", libc::SYS_setuid, "4321", REFUSED),
        ];
        all_refused(&mut inside, &attempts).await;

        let status = inside.probe(&["read", "/proc/self/status"]).await.join("");
        let facts = [
            "Uid:\\t1001\\t1001\\t1001\\t1001",
            "Gid:\\t1001\\t1001\\t1001\\t1001",
            "CapInh:\\t0000000000000000",
            "CapPrm:\\t0000000000000000",
            "CapEff:\\t0000000000000000",
            "CapBnd:\\t0000000000000000",
            "CapAmb:\\t0000000000000000",
            "NoNewPrivs:\\t1",
            "Seccomp:\\t2",
        ];
        for fact in facts {
            assert!(status.contains(&format!("{fact}\\n")), "{fact} is not in {status}");
        }
    }
}

#[tokio::test]
async fn c1_no_namespace_mount_or_root_can_be_changed() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_namespace(&mut inside).await;
    }
}

#[tokio::test]
async fn c1_the_kernel_s_dangerous_parts_are_closed() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_dangerous_part(&mut inside).await;
    }
}

#[tokio::test]
async fn p3_devices_and_set_id_bits_cannot_be_made() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_device_and_no_set_id_bit(&mut inside, 0).await;
    }
}
