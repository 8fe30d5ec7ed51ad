//! Tests the purpose of the profile: root installs packages of the image's distribution.

use harness::{calls, pid_of, requests, script};

use crate::{daemon, rooted};

/// Builds a package with a program, a directory and a script that makes a user of its own, as services' packages do.
const BUILD: &str = r"
set -e
mkdir -p /srv/r && cd /srv/r
mkdir -p pkg/DEBIAN pkg/usr/bin pkg/var/lib/greeter pkg/etc/greeter
printf 'Package: greeter\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.org>\nDepends: adduser\nDescription: greets\n' >pkg/DEBIAN/control
cat >pkg/DEBIAN/postinst <<'END'
#!/bin/sh
set -e
adduser --quiet --system --group --home /var/lib/greeter --no-create-home greeter
chown greeter:greeter /var/lib/greeter
END
printf '/etc/greeter/config\n' >pkg/DEBIAN/conffiles
printf 'polite\n' >pkg/etc/greeter/config
printf '#!/bin/sh\necho hello\n' >pkg/usr/bin/greet
chmod 755 pkg/DEBIAN/postinst pkg/usr/bin/greet
dpkg-deb --build --root-owner-group pkg greeter.deb >/dev/null
";

/// Makes it known to apt as what a mirror has, and installs it: apt fetches as a user of its own, which has given up root's groups.
const APT: &str = r#"
cd /srv/r
{
    cat pkg/DEBIAN/control
    printf 'Filename: ./greeter.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s greeter.deb)" "$(sha256sum greeter.deb | cut -d' ' -f1)"
} >Packages
rm -f /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] copy:/srv/r ./' >/etc/apt/sources.list
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update 2>&1
apt-get -qq install -y greeter >/dev/null 2>&1
greet"#;

#[tokio::test(flavor = "multi_thread")]
async fn u1_packages_are_installed_by_a_root_without_host_privileges() {
    let daemon = daemon().await;
    let mut run = daemon.run_on(rooted(requests::managed("rooted"))).await;
    assert_eq!(script(&mut run, "id -u; id -un; echo $HOME; cd; pwd").await, "0\nroot\n/root\n/root\n");
    script(&mut run, BUILD).await;
    assert_eq!(script(&mut run, APT).await, "hello\n");
    let owner = "stat -c %U:%G /var/lib/greeter /usr/bin/greet; dpkg-query -W -f '${Status}' greeter";
    assert_eq!(script(&mut run, owner).await, "greeter:greeter\nroot:root\ninstall ok installed");
    // What the package's user does, it does with its own rights.
    let other = "setpriv --reuid greeter --regid greeter --init-groups sh -c \
                 'id -un; touch /var/lib/greeter/x && echo mine; touch /usr/bin/x 2>/dev/null || echo closed'";
    assert_eq!(script(&mut run, other).await, "greeter\nmine\nclosed\n");
    for install in ["dpkg -i greeter.deb", "apt-get -qq install -y ./greeter.deb"] {
        let again = format!("cd /srv/r && dpkg --purge greeter && {install} && greet");
        assert!(script(&mut run, &again).await.ends_with("hello\n"), "{install}");
    }

    // On the host all of it is nobody's.
    let container = run.run.container_id.clone();
    for line in ["/.cofferdam/guest hold", "/.cofferdam/guest serve"] {
        let pid = pid_of(&container, line).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for fact in ["CapPrm", "CapEff", "CapBnd"] {
            assert!(status.contains(&format!("{fact}:\t00000000000000eb\n")), "{line}: {status}");
        }
        assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n"), "{status}");
        let uid: u32 = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:\t")?.split('\t').next()?.parse().ok())
            .unwrap();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        assert!(uid >= 65_536 && !passwd.contains(&format!(":x:{uid}:")), "{uid}");
        let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap();
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", &uid.to_string(), "65536"]);
    }
    let fact = |name: &str| {
        run.run.hardening.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone()).unwrap()
    };
    assert_eq!(fact("user"), "0:0");
    assert!(fact("user_on_host").parse::<u32>().is_err() && !fact("user_on_host").starts_with("0:"));
    assert_eq!(
        fact("capabilities_added"),
        "CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID"
    );
    let id = run.id().to_owned();
    let created = harness::record(&run.clients.events(&id, "run_created").await[0]);
    assert_eq!(created["details"]["root_in_user_namespace"], true);

    run.stop().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    assert!(daemon.root_is_gone(run.id()));
}

/// No set-id bit can be set, wherever it would be: a package with such a file is not installed.
#[tokio::test(flavor = "multi_thread")]
async fn u1_a_package_with_a_set_id_file_is_refused_by_the_kernel() {
    let daemon = daemon().await;
    let mut run = daemon.run_on(rooted(requests::managed("rooted"))).await;
    // The bit is put into the package's archive by tar, which only reads it.
    let build = "tar --owner=0 --group=0 --mode=4755 -C pkg -cf data.tar ./usr/bin/greet && \
                 mkdir -p c && cp pkg/DEBIAN/control c && tar --owner=0 --group=0 -C c -cf control.tar . && \
                 echo 2.0 >debian-binary && rm -f set.deb && perl -e '";
    // An archive of ar(1), which a minimal image has no program for.
    let ar = r#"print "!<arch>\n"; for (@ARGV) { my $s = -s $_; printf "%-16s%-12d%-6d%-6d%-8s%-10d`\n", $_, 0, 0, 0, "100644", $s; open F, $_; local $/; print <F>; print "\n" if $s % 2 }' debian-binary control.tar data.tar >set.deb"#;
    script(&mut run, &format!("{BUILD}\n{build}{ar}")).await;
    let result = run.ran(calls::shell("dpkg -i /srv/r/set.deb 2>&1; ls -l /usr/bin/greet 2>&1")).await;
    assert!(result.stdout.contains("error setting permissions"), "{}", result.stdout);
    assert!(!result.stdout.contains("rws"), "{}", result.stdout);
}
