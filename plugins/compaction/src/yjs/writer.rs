//! Writes a model as one V1 update.
//!
//! Decides only how runs are encoded. It is the inverse of the reader, which tests verify.

use super::content::Kind;
use super::model::{Model, Parent, Run};
use super::names::{Id, Names};
use super::wire::{write_string, write_var_uint};

/// The update with the content of the model.
pub fn write(names: &Names, model: &Model) -> Vec<u8> {
    let mut out = Vec::new();
    let with_runs: Vec<u32> =
        names.descending().into_iter().filter(|&n| model.client(n).end() > 0).collect();
    write_var_uint(&mut out, with_runs.len() as u64);
    for &number in &with_runs {
        let client = model.client(number);
        write_var_uint(&mut out, client.runs.len() as u64);
        write_var_uint(&mut out, names.client_id(number));
        write_var_uint(&mut out, u64::from(client.runs[0].clock));
        for run in &client.runs {
            write_run(&mut out, names, run, &client.arena);
        }
    }
    let with_deletions: Vec<u32> =
        with_runs.into_iter().filter(|&n| !model.client(n).deleted.is_empty()).collect();
    write_var_uint(&mut out, with_deletions.len() as u64);
    for number in with_deletions {
        let deleted = &model.client(number).deleted;
        write_var_uint(&mut out, names.client_id(number));
        write_var_uint(&mut out, deleted.iter().len() as u64);
        for (start, end) in deleted.iter() {
            write_var_uint(&mut out, u64::from(start));
            write_var_uint(&mut out, u64::from(end - start));
        }
    }
    out
}

fn write_run(out: &mut Vec<u8>, names: &Names, run: &Run, arena: &[u8]) {
    let place = &run.place;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let info = run.kind as u8
        | flag(place.origin.is_some(), 0x80)
        | flag(place.right_origin.is_some(), 0x40)
        | flag(place.parent_sub.is_some(), 0x20);
    out.push(info);
    if run.kind == Kind::Gc {
        write_var_uint(out, u64::from(run.len));
        return;
    }
    for id in [place.origin, place.right_origin] {
        if id.is_some() {
            write_id(out, names, id);
        }
    }
    match place.parent {
        Parent::Inherited => {}
        Parent::Root(name) => {
            write_var_uint(out, 1);
            write_string(out, names.text_of(name));
        }
        Parent::Item(id) => {
            write_var_uint(out, 0);
            write_id(out, names, id);
        }
    }
    if place.parent_sub.is_some() {
        write_string(out, names.text_of(place.parent_sub));
    }
    let bytes = &arena[run.bytes.0 as usize..run.bytes.1 as usize];
    match run.kind {
        Kind::String => write_var_uint(out, bytes.len() as u64),
        Kind::Gc | Kind::Deleted | Kind::Json | Kind::Any => {
            write_var_uint(out, u64::from(run.len));
        }
        Kind::Binary | Kind::Embed | Kind::Format | Kind::Type | Kind::Doc => {}
    }
    out.extend_from_slice(bytes);
}

fn write_id(out: &mut Vec<u8>, names: &Names, id: Id) {
    write_var_uint(out, names.client_id(id.client));
    write_var_uint(out, u64::from(id.clock));
}
