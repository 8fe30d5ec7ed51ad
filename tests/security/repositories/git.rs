//! G1 and G3 to G9: what a repository can say, link to, redirect, plant and break; P1 to P5: paths.

use super::Does::{Add, Cached, Commit, Diff, Grep, List, Read, Status, Write};
use super::Expect::{Done, Ends, Refused};
use super::{Case, GIT, play};

const SANDBOX: &str = "SANDBOX_VIOLATION";

const fn case(name: &'static str, script: &'static str, expect: super::Expect) -> Case {
    Case { name, script, does: GIT, expect }
}

#[tokio::test]
async fn g1_links_in_a_repository_lead_nowhere() {
    play(&[
        case("index", r#"cp .git/index "$OUT/index"; ln -sf "$OUT/index" .git/index"#, Refused(SANDBOX, "a symbolic link")),
        case("index to be", r#"ln -sf "$OUT/to-be" .git/index"#, Refused(SANDBOX, "a symbolic link")),
        case("HEAD", r#"ln -sf "$OUT/ref" .git/HEAD"#, Refused(SANDBOX, "a symbolic link")),
        case("a branch", r#"ln -sf "$OUT/ref" .git/refs/heads/main"#, Ends),
        case("a branch to be", r#"ln -sf "$OUT/to-be" .git/refs/heads/main"#, Ends),
        case("all references", r#"mv .git/refs "$OUT/refs"; ln -s "$OUT/refs" .git/refs"#, Refused(SANDBOX, "a symbolic link")),
        case("the branches", r#"mv .git/refs/heads "$OUT/heads"; ln -s "$OUT/heads" .git/refs/heads"#, Ends),
        case("packed references", r#"git pack-refs --all; mv .git/packed-refs "$OUT/packed"; ln -s "$OUT/packed" .git/packed-refs"#, Refused(SANDBOX, "a symbolic link")),
        case("the log of HEAD", r#"mv .git/logs/HEAD "$OUT/log"; ln -s "$OUT/log" .git/logs/HEAD"#, Refused(SANDBOX, "a symbolic link")),
        case("the log of a branch", r#"mv .git/logs/refs/heads/main "$OUT/log"; ln -s "$OUT/log" .git/logs/refs/heads/main"#, Ends),
        case("the logs", r#"mv .git/logs/refs "$OUT/logs"; ln -s "$OUT/logs" .git/logs/refs"#, Ends),
        case("all objects", r#"mv .git/objects "$OUT/objects"; ln -s "$OUT/objects" .git/objects"#, Refused(SANDBOX, "a symbolic link")),
        case("objects by their first byte", r#"
            for byte in $(printf '%02x ' $(seq 0 255)); do
                rm -rf ".git/objects/$byte"; mkdir -p "$OUT/fan/$byte"; ln -s "$OUT/fan/$byte" ".git/objects/$byte"
            done"#, Ends),
        case("packs", r#"git gc -q; mv .git/objects/pack "$OUT/pack"; ln -s "$OUT/pack" .git/objects/pack"#, Refused(SANDBOX, "a symbolic link")),
        case("locks", r#"for lock in index HEAD refs/heads/main config packed-refs; do ln -s "$OUT/lock" ".git/$lock.lock"; done"#, Ends),
        case("the message", r#"ln -sf "$OUT/message" .git/COMMIT_EDITMSG"#, Refused(SANDBOX, "a symbolic link")),
    ])
    .await;
}

#[tokio::test]
async fn g3_redirections_are_refused() {
    play(&[
        case(".git is a file", r#"rm -r .git; echo "gitdir: $OUT/.git" >.git"#, Refused(SANDBOX, "a file instead of a directory")),
        case(".git is a file, relative", r"rm -r .git; echo gitdir: ../../canaries/.git >.git", Refused(SANDBOX, "a file instead")),
        case(".git is a link", r#"rm -r .git; ln -s "$OUT/.git" .git"#, Refused(SANDBOX, "@project/.git is a symbolic link")),
        case(".git is a link within", r"mv .git elsewhere; ln -s elsewhere .git", Refused(SANDBOX, "@project/.git is a symbolic link")),
        case("commondir", r#"echo "$OUT/.git" >.git/commondir"#, Refused(SANDBOX, "commondir")),
        case("gitdir", r#"echo "$OUT/.git" >.git/gitdir"#, Refused(SANDBOX, "gitdir")),
        case("core.worktree", r#"git config core.worktree "$OUT""#, Refused(SANDBOX, "core.worktree")),
        case("core.worktree, relative", r"git config core.worktree ../../../canaries", Refused(SANDBOX, "core.worktree")),
        case("core.worktree, included", r#"git config include.path more; printf '[core]\nworktree = %s\n' "$OUT" >.git/more"#, Refused(SANDBOX, "core.worktree")),
        case("a configuration of the work tree", r#"
            git config extensions.worktreeConfig true
            printf '[core]\nworktree = %s\n' "$OUT" >.git/config.worktree"#, Refused(SANDBOX, "@project/.git")),
        case("core.bare", r"git config core.bare true", Refused(SANDBOX, "a bare repository")),
        case("a linked work tree", r#"
            rm -rf .git a d new; git -C "$OUT" worktree add -q --detach -f "$W/tree"; mv tree/.git tree/secret .; echo x >secret"#,
            Refused(SANDBOX, "a file instead of a directory")),
        case("another user's repository", r"last() { chown -R 0:0 .git; chmod -R a+rwX .git; }", Refused("PRECONDITION_FAILED", "belongs to another user")),
    ])
    .await;
}

#[tokio::test]
async fn g4_foreign_objects_are_not_read() {
    play(&[
        Case {
            name: "alternates",
            script: r#"
                echo "$OUT/.git/objects" >.git/objects/info/alternates
                git update-index --add --cacheinfo "100644,$(cat "$OUT/blob"),stolen"; git reset -q --soft; rm -f a; git checkout -q a"#,
            does: &[Status, Diff, Cached, Add("a"), Commit],
            expect: Ends,
        },
        Case {
            name: "alternates, relative",
            script: r#"
                echo ../../../../canaries/.git/objects >.git/objects/info/alternates
                git update-index --add --cacheinfo "100644,$(cat "$OUT/blob"),stolen""#,
            does: &[Status, Diff, Cached, Commit],
            expect: Ends,
        },
        case("alternates as a link", r#"echo "$OUT/.git/objects" >"$OUT/alternates"; ln -s "$OUT/alternates" .git/objects/info/alternates"#, Refused(SANDBOX, "a symbolic link")),
        case("an included configuration", r#"printf '[user]\nname = the canary sings\n' >"$OUT/config"; git config include.path "$OUT/config""#, Done),
        case("a configuration included by condition", r#"
            printf '[user]\nname = the canary sings\n[core]\nbare = true\n' >"$OUT/config"
            git config 'includeIf.gitdir:/.path' "$OUT/config""#, Done),
        case("excludes", r#"echo '*' >"$OUT/excludes"; git config core.excludesFile "$OUT/excludes""#, Done),
        case("attributes", r#"echo '* -diff' >"$OUT/attributes"; git config core.attributesFile "$OUT/attributes""#, Done),
        case("a template of messages", r#"git config commit.template "$OUT/secret""#, Done),
        case("mailmap, ignored revisions and orders", r#"
            git config mailmap.file "$OUT/secret"; git config blame.ignoreRevsFile "$OUT/ref"; git config diff.orderFile "$OUT/secret""#, Done),
    ])
    .await;
}

#[tokio::test]
async fn g5_links_are_added_as_links() {
    play(&[
        Case { name: "a file behind a link", script: r#"ln -s "$OUT" out"#, does: &[Add("out/secret")], expect: Refused(SANDBOX, "beyond a symbolic link") },
        Case { name: "a tracked directory became a link", script: r#"
            mkdir t; echo x >t/secret; git add t; git commit -q -m t; rm -r t; ln -s "$OUT" t"#, does: &[Add("t/secret")], expect: Refused(SANDBOX, "beyond a symbolic link") },
        case("a tracked directory became a link, all", r#"
            mkdir t; echo x >t/secret; git add t; git commit -q -m t; rm -r t; ln -s "$OUT" t"#, Done),
        case("links to files", r#"ln -s "$OUT/secret" absolute; ln -s ../../canaries/secret relative; ln -s /proc/self/environ proc; ln -s /etc/passwd passwd"#, Done),
        case("a tracked file became a link", r"ln -sf ../../canaries/secret a", Done),
    ])
    .await;
}

#[tokio::test]
async fn g6_blocking_git_files_do_not_hang() {
    play(&[
        case("index", "rm .git/index; mkfifo .git/index", Refused(SANDBOX, "a FIFO")),
        case("config", "rm .git/config; mkfifo .git/config", Refused(SANDBOX, "a FIFO")),
        case("HEAD", "rm .git/HEAD; mkfifo .git/HEAD", Refused(SANDBOX, "a FIFO")),
        case("shallow", "mkfifo .git/shallow", Refused(SANDBOX, "a FIFO")),
        case("packed references", "mkfifo .git/packed-refs", Refused(SANDBOX, "a FIFO")),
        case("exclude", "mkdir -p .git/info; rm -f .git/info/exclude; mkfifo .git/info/exclude", Refused(SANDBOX, "a FIFO")),
        case("attributes", "mkdir -p .git/info; mkfifo .git/info/attributes", Refused(SANDBOX, "a FIFO")),
        case("grafts", "mkdir -p .git/info; mkfifo .git/info/grafts", Refused(SANDBOX, "a FIFO")),
        case("alternates", "mkfifo .git/objects/info/alternates", Refused(SANDBOX, "a FIFO")),
        case("ignore file", "mkfifo .gitignore", Refused(SANDBOX, "a FIFO")),
        case("attribute file", "mkfifo .gitattributes", Refused(SANDBOX, "a FIFO")),
        case("ignore file further down", "echo x >d/x; mkfifo d/.gitignore", Ends),
        case("attribute file further down", "echo x >d/b; mkfifo d/.gitattributes", Ends),
        case("a branch", "rm .git/refs/heads/main; mkfifo .git/refs/heads/main", Ends),
        case("a log", "rm .git/logs/refs/heads/main; mkfifo .git/logs/refs/heads/main", Ends),
        case("an included configuration", "git config include.path more; mkfifo .git/more", Ends),
        case("an object", r#"o=.git/objects/$(git rev-parse HEAD:a | sed 's|^..|&/|'); rm -f "$o"; mkfifo "$o""#, Ends),
        case("the tree", r#"o=.git/objects/$(git rev-parse HEAD: | sed 's|^..|&/|'); rm -f "$o"; mkfifo "$o"; rm .git/index"#, Ends),
        case("a pack", "git gc -q; for p in .git/objects/pack/*.pack; do rm -f $p; mkfifo $p; done", Ends),
        case("a pack's index", "git gc -q; for p in .git/objects/pack/*.idx; do rm -f $p; mkfifo $p; done", Ends),
        case("a tracked file", "rm a; mkfifo a", Ends),
        Case { name: "a new file", script: "mkfifo pipe", does: &[Add("pipe")], expect: Refused(SANDBOX, "special") },
        case("a submodule's .git", r#"git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"; mkdir sub; mkfifo sub/.git"#, Ends),
        case("a submodule's HEAD", r#"git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"; git init -q sub; rm sub/.git/HEAD; mkfifo sub/.git/HEAD"#, Ends),
        case("a socket", r#"rm .git/index; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(b".git/index")'"#, Refused(SANDBOX, "a socket")),
    ])
    .await;
}

#[tokio::test]
async fn g7_broken_and_huge_objects_are_bounded() {
    play(&[
        case("a blob that is cut", r#"o=.git/objects/$(git rev-parse HEAD:a | sed 's|^..|&/|'); chmod +w "$o"; truncate -s 10 "$o""#, Ends),
        case("a blob of nothing", r#"o=.git/objects/$(git rev-parse HEAD:a | sed 's|^..|&/|'); chmod +w "$o"; truncate -s 0 "$o""#, Ends),
        case("a commit that is cut", r#"o=.git/objects/$(git rev-parse HEAD | sed 's|^..|&/|'); chmod +w "$o"; truncate -s 12 "$o""#, Ends),
        case("a tree that is cut", r#"o=.git/objects/$(git rev-parse HEAD: | sed 's|^..|&/|'); chmod +w "$o"; truncate -s 12 "$o"; rm .git/index"#, Ends),
        case("a pack that is cut", r"git gc -q; chmod -R +w .git/objects; for p in .git/objects/pack/*.pack; do truncate -s 40 $p; done", Ends),
        case("a pack's index that is cut", r"git gc -q; chmod -R +w .git/objects; for p in .git/objects/pack/*.idx; do truncate -s 1040 $p; done", Ends),
        case("an object that inflates to 2 GiB", r#"
            o=.git/objects/$(git rev-parse HEAD:a | sed 's|^..|&/|'); chmod +w "$o"
            python3 -c 'import sys,zlib
z=zlib.compressobj(9);w=sys.stdout.buffer.write;n=2<<30;w(z.compress(b"blob %d\0"%n));c=bytes(1<<24)
[w(z.compress(c)) for _ in range(n>>24)];w(z.flush())' >"$o""#, Ends),
        case("an index that is cut", "truncate -s 100 .git/index", Refused("PRECONDITION_FAILED", "index")),
        case("an index of four billion entries", r"printf '\377\377\377\377' | dd of=.git/index bs=1 seek=8 conv=notrunc 2>/dev/null", Refused("PRECONDITION_FAILED", "")),
        case("an index of 4 GiB", "truncate -s 4G .git/index", Ends),
        case("a configuration of 4 GiB", "truncate -s 4G .git/config", Ends),
        case("an ignore file of 4 GiB", "truncate -s 4G .gitignore", Ends),
        case("a tracked file of 100 GiB", "truncate -s 100G a", Ends),
        Case { name: "a new file of 100 GiB", script: "truncate -s 100G huge", does: &[Add("huge")], expect: Refused("WRITE_LIMIT", "at most") },
        case("trees in trees without an end", r#"
            t=$(git mktree </dev/null); i=0
            while [ $i -lt 40 ]; do t=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\t%s\n' "$t" "$n"; done | git mktree); i=$((i + 1)); done
            git update-ref refs/heads/main "$(git commit-tree -m bomb "$t")""#, Ends),
    ])
    .await;
}

#[tokio::test]
async fn g8_repositories_within_are_not_opened() {
    play(&[
        case("a nested repository that is elsewhere", r#"mkdir nested; echo "gitdir: $OUT/.git" >nested/.git"#, Done),
        Case { name: "the same, by name", script: r#"mkdir nested; echo "gitdir: $OUT/.git" >nested/.git"#, does: &[Add("nested")], expect: Refused("INVALID_ARGUMENT", "separate repository") },
        case("a nested repository by a link", r#"mkdir nested; ln -s "$OUT/.git" nested/.git"#, Done),
        case("a submodule that is elsewhere", r#"
            git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"; mkdir sub; echo "gitdir: $OUT/.git" >sub/.git"#, Done),
        case("a submodule that a link is", r#"git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"; ln -s ../../canaries sub"#, Done),
        case("a submodule with its own work tree", r#"
            git init -q sub; git -C sub commit -q --allow-empty -m s; git add sub; git -C sub config core.worktree "$OUT"
            git config submodule.sub.url "$OUT"; printf '[submodule "sub"]\n path = ../../canaries\n url = %s\n' "$OUT" >.gitmodules"#, Done),
        case("a tree with a .git in it", r#"
            b=$(git hash-object -w a); i=$(printf '100755 blob %s\tpre-commit\n' "$b" | git mktree)
            h=$(printf '040000 tree %s\thooks\n' "$i" | git mktree); t=$(printf '040000 tree %s\t.git\n' "$h" | git mktree)
            git update-ref refs/heads/main "$(git commit-tree -m dotgit "$t")""#, Ends),
        case("a tree with .. in it", r#"
            b=$(git hash-object -w a); i=$(printf '100644 blob %s\tsecret\n' "$b" | git mktree)
            t=$(printf '040000 tree %s\t..\n' "$i" | git mktree); git update-ref refs/heads/main "$(git commit-tree -m up "$t")""#, Ends),
        case("an index with .. in it", r"sed -i 's|d/b|../|' .git/index", Refused("PRECONDITION_FAILED", "")),
    ])
    .await;
}

#[tokio::test]
async fn g9_planted_hooks_and_filters_do_not_run() {
    play(&[
        case("hooks", r"
            mkdir -p .git/hooks; for hook in pre-commit commit-msg prepare-commit-msg post-commit post-index-change reference-transaction fsmonitor-watchman; do
                sings $hook >.git/hooks/$hook; chmod +x .git/hooks/$hook; done", Done),
        case("hooks elsewhere", r"mkdir hooks; sings pre-commit >hooks/pre-commit; chmod +x hooks/pre-commit; git config core.hooksPath hooks", Done),
        case("a filter", r#"sings clean >f; chmod +x f; git config filter.x.clean "$W/f"; git config filter.x.smudge "$W/f"; echo '* filter=x' >.gitattributes"#, Ends),
        case("a filter that is required", r#"
            sings process >f; chmod +x f; git config filter.x.process "$W/f"; git config filter.x.required true; echo '* filter=x' >.gitattributes"#, Ends),
        case("an external diff", r#"sings diff >f; chmod +x f; git config diff.external "$W/f""#, Done),
        case("a driver of diffs", r#"
            sings driver >f; chmod +x f; git config diff.x.command "$W/f"; git config diff.x.textconv "$W/f"; echo '* diff=x' >.gitattributes"#, Done),
        case("a monitor", r#"sings monitor >f; chmod +x f; git config core.fsmonitor "$W/f""#, Done),
        case("a signature", r#"sings gpg >f; chmod +x f; git config commit.gpgSign true; git config gpg.program "$W/f"; git config user.signingKey x"#, Done),
        case("an editor, a pager, a helper", r#"
            sings tool >f; chmod +x f; for key in core.editor core.pager core.askPass core.sshCommand sequence.editor credential.helper trailer.x.command; do
                git config $key "$W/f"; done"#, Done),
        case("a maintenance", r"sings auto >.git/hooks/pre-auto-gc; chmod +x .git/hooks/pre-auto-gc; git config gc.auto 1; git config maintenance.auto true", Done),
    ])
    .await;
}

#[tokio::test]
async fn p_paths_of_hostile_workspaces_lead_nowhere() {
    play(&[
        Case { name: "P1, a directory that is a link", script: r#"rm -r d; ln -s "$OUT" d"#, does: &[Write("d/secret"), Write("d/more/new"), Read("d/secret"), List("d"), Grep("d")], expect: Refused(SANDBOX, "") },
        Case { name: "P1, a link to a link", script: r#"ln -s "$OUT" one; ln -s one two"#, does: &[Write("two/secret"), Read("two/secret")], expect: Refused(SANDBOX, "") },
        Case { name: "P2, a FIFO, to read", script: "mkfifo pipe", does: &[Read("pipe")], expect: Ends },
        Case { name: "P2, a FIFO, to write", script: "mkfifo pipe; mkdir q; mkfifo q/pipe", does: &[Write("pipe"), Write("q/pipe")], expect: Ends },
        Case { name: "P2, a device", script: "mknod zero c 1 5; mknod disk b 7 0", does: &[Read("zero"), Write("zero"), Read("disk"), Write("disk")], expect: Ends },
        Case { name: "P3, a hard link to a file outside", script: r#"ln "$OUT/secret" hard"#, does: &[Write("hard")], expect: Ends },
        Case { name: "P3, a file with set-id bits", script: "last() { chmod 6755 a; }", does: &[Write("a")], expect: Done },
        Case { name: "P4, .. and absolute paths", script: "", does: &[Read("../canaries/secret"), Write("../canaries/secret"), Read("/etc/passwd"), Write("/etc/passwd"), Read("d/../../canaries/secret")], expect: Refused(SANDBOX, "") },
        Case { name: "P4, links to files", script: r#"ln -s "$OUT/secret" absolute; ln -s ../../canaries/secret relative; ln -s /proc/self/environ proc"#, does: &[Read("absolute"), Read("relative"), Read("proc")], expect: Refused(SANDBOX, "") },
        Case { name: "P4, links to files, to write", script: r#"ln -s "$OUT/secret" absolute; ln -s "$OUT/to-be" to-be"#, does: &[Write("absolute"), Write("to-be")], expect: Ends },
        Case { name: "P5, git's own files", script: "", does: &[Write(".git/hooks/pre-commit"), Write(".git/config"), Write(".GIT/config"), Write("d/.git/config"), Write(".git /config")], expect: Refused(SANDBOX, "") },
        Case { name: "P5, git's own files by a link", script: "ln -s .git g; ln -s .git/hooks h", does: &[Write("g/config"), Write("h/pre-commit")], expect: Refused(SANDBOX, "") },
        Case { name: "P5, another .git takes the place", script: r#"
            mkdir w2; mv .git a d new w2; git init -q .; git config core.worktree "$OUT""#, does: &[Status, Diff, Add("w2"), Commit], expect: Refused(SANDBOX, "core.worktree") },
    ])
    .await;
}
