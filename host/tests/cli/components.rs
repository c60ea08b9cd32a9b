//! Plugin files: what is compiled, and what is refused.

use std::path::Path;
use std::process::Command;

use crate::site::Site;

/// A component with one function of this many bytes and local variables; compiling it takes time
/// quadratic in both.
fn bomb(bytes: usize, locals: usize) -> Vec<u8> {
    fn leb(out: &mut Vec<u8>, mut value: usize) {
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    fn section(out: &mut Vec<u8>, id: u8, payload: &[u8]) {
        out.push(id);
        leb(out, payload.len());
        out.extend(payload);
    }
    let mut body = vec![1];
    leb(&mut body, locals);
    body.push(0x7f);
    let mut at = 1_usize;
    while body.len() < bytes {
        // c = a + b; if a { a = c }
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c] = [at >> 33, at >> 40, at >> 47].map(|n| n % locals);
        for (code, local) in [(0x20, a), (0x20, b)] {
            body.push(code);
            leb(&mut body, local);
        }
        body.extend([0x6a, 0x21]);
        leb(&mut body, c);
        body.push(0x20);
        leb(&mut body, a);
        body.extend([0x04, 0x40, 0x20]);
        leb(&mut body, c);
        body.push(0x21);
        leb(&mut body, a);
        body.push(0x0b);
    }
    body.push(0x0b);
    let mut code = vec![1];
    leb(&mut code, body.len());
    code.extend(body);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    section(&mut module, 1, &[1, 0x60, 0, 0]);
    section(&mut module, 3, &[1, 0]);
    section(&mut module, 10, &code);
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    section(&mut component, 1, &module);
    component
}

#[test]
fn a_component_that_costs_too_much_to_compile_is_refused_by_its_name() {
    let site = Site::new("[plugins]\ncompile_time = \"1s\"\n[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("bomb.wasm");
    for (bytes, locals, words) in [
        // It is compiled, but it is not a task.
        (1_000, 10, "it is a component, but not a task"),
        (600_000, 100, "bytes in one function: at most 524288"),
        (100, 5_000, "5000 local variables in one function: at most 4000"),
        (400_000, 500, "it takes more than 1 s of CPU time"),
    ] {
        std::fs::write(&file, bomb(bytes, locals)).expect("written");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(words) && said.contains("besom.toml:4:10"), "{words}: {said}");
    }
}

#[test]
fn a_component_that_takes_too_much_memory_to_compile_is_refused_by_its_name() {
    let limits = "compile_memory = \"256MiB\"\ncompile_time = \"10m\"";
    let site = Site::new(&format!("[plugins]\n{limits}\n[tasks.a]\nplugin = \"bomb.wasm\"\n"));
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    for (bytes, locals, words) in [
        (1_000, 10, "it is a component, but not a task"),
        (500_000, 3_000, "it takes more than 256 MiB of memory"),
    ] {
        std::fs::write(dir.join("bomb.wasm"), bomb(bytes, locals)).expect("written");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Who owns a component, or the directory that it is in, decides what runs.
#[test]
fn a_component_of_another_user_is_refused_by_its_owner() {
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        // Only root can give a file away; every other user could only be given one.
        return;
    }
    let site = Site::new("[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("bomb.wasm");
    std::fs::write(&file, bomb(1_000, 10)).expect("written");
    for (given, kept) in [(&file, &dir), (&dir, &file)] {
        chown(given, Some(NOBODY), None).expect("given away");
        chown(kept, Some(0), None).expect("taken back");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains("it belongs to another user (uid 65534)"), "{said}");
        assert!(said.contains(given.file_name().unwrap().to_str().unwrap()), "{said}");
    }
}

/// As in many services and containers: no privileges, and a hard limit of 0 for core dumps.
#[test]
fn whoever_may_not_raise_a_limit_can_compile_all_the_same() {
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    let site = Site::new("[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(dir.join("bomb.wasm"), bomb(1_000, 10)).expect("written");
    // Standard input is the binary itself: this user need not be able to read the directory it is
    // in.
    let line = "ulimit -Hc 0; ulimit -Hf 1000000; ulimit -Ht 50; exec /proc/self/fd/0 check";
    let shell = ["bash", "-c", line];
    let user = NOBODY.to_string();
    let setpriv = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    let words = match rustix::process::geteuid().is_root() {
        true => {
            chown(site.dir(), Some(NOBODY), Some(NOBODY)).expect("given away");
            [&setpriv[..], &shell].concat()
        }
        false => shell.to_vec(),
    };
    let program = std::fs::File::open(env!("CARGO_BIN_EXE_besom")).expect("the binary");
    let out = Command::new(words[0])
        .args(&words[1..])
        .current_dir(site.dir())
        .env_remove("BESOM_CONFIG")
        .env("BESOM_HOST_DEFAULT_MODE", "live")
        .env("HOME", site.dir())
        .env("XDG_CACHE_HOME", site.dir())
        .stdin(program)
        .output()
        .expect("the shell runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(78), "{said}");
    assert!(said.contains("it is a component, but not a task"), "{said}");
}

#[test]
fn a_plugin_is_a_regular_file_that_nobody_else_can_write() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let site = Site::new("[tasks.a]\nplugin = \"a.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("a.wasm");
    let made = Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("not a regular file"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    symlink("/dev/zero", &file).expect("linked");
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("not a regular file"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, bomb(1_000, 10)).expect("written");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    for (path, open, closed) in [(&file, 0o646, 0o644), (&dir, 0o757, 0o755)] {
        mode(path, open);
        let (code, said) = site.fails(&["check"]);
        assert!(code == 78 && said.contains("other users can write to it"), "{said}");
        mode(path, closed);
    }
    let (_, said) = site.fails(&["check"]);
    assert!(said.contains("not a task"), "{said}");
}
