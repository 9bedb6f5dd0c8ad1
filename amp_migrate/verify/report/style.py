"""The style of the HTML report: light and dark, on a screen, a phone and paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2127; --page: #fff; --soft: #5d6670; --line: #d8dce1; --card: #f6f7f9;
  --agrees: #1a7f37; --disagrees: #c62828; --unjudged: #9a6700; --skipped: #5d6670; --link: #0b5cad;
  --add: #1a7f3718; --del: #c6282818; --not: #9a670030; --blue: #3b82c4; --orange: #e07b39; --grey: #8a8f98; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --page: #14171b; --soft: #9aa4ae; --line: #333a42;
  --card: #1d2126; --agrees: #4cc46a; --disagrees: #ff7b72; --unjudged: #e3b341; --skipped: #9aa4ae; --link: #79b8ff;
  --add: #4cc46a22; --del: #ff7b7222; --not: #e3b34138; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; } a { color: var(--link); }
.badge { display: inline-block; min-width: 6.2rem; padding: .1rem .6rem; border-radius: 1rem; color: var(--page);
  text-align: center; font-size: .85rem; font-weight: 600; overflow-wrap: normal; }
.agrees { background: var(--agrees); } .disagrees { background: var(--disagrees); }
.unjudged { background: var(--unjudged); } .skipped { background: var(--skipped); }
.caveat { margin: 0 0 1rem; color: var(--unjudged); font-weight: 600; }
.verdict { border: 1px solid var(--line); background: var(--card); border-radius: .5rem; padding: .7rem 1rem;
  margin: .6rem 0; }
.verdict p { margin: .3rem 0; } .verdict ul, .plain { margin: .3rem 0; padding-left: 1.2rem; }
code { font-family: ui-monospace, monospace; font-size: .92em; background: var(--card); border-radius: .25rem;
  padding: 0 .15em; }
.likely { border-left: .25rem solid var(--disagrees); padding-left: .7rem; margin: .6rem 0; }
.soft { color: var(--soft); } svg { width: 100%; height: auto; display: block; }
@media (max-width: 40rem) { .wide svg { min-width: 34rem; } body { padding: .8rem; } }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.index td { vertical-align: top; } .index td:nth-child(n+2), .index th { text-align: left; }
.index td:last-child { white-space: normal; }
@media (max-width: 40rem) { .index tr { display: block; border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .index td { display: block; border: 0; padding: .1rem 0; white-space: normal; } .index tr:first-child { display: none; } }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .2rem 0 0; padding: 0; list-style: none;
  font-size: .88rem; color: var(--soft); }
.legend i { display: inline-block; width: 1.6rem; height: 0; margin-right: .4rem; vertical-align: middle;
  border-top: .18rem solid; }
.legend i.dashed { border-top-style: dashed; } .legend i.area { height: .8rem; border: 0; background: currentColor; opacity: .6; }
.legend i.dot { width: .5rem; height: .5rem; border: 0; border-radius: 50%; background: currentColor; }
.blue { color: var(--blue); } .orange { color: var(--orange); } .grey { color: var(--grey); }
.bar { height: .6rem; border-radius: .3rem; background: var(--not); overflow: hidden; margin: .4rem 0; }
.bar div { height: 100%; background: var(--agrees); }
details { margin: .6rem 0; } summary { cursor: pointer; }
.diff { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem 0;
  font: .82rem/1.45 ui-monospace, monospace; overflow-wrap: normal; }
.diff > div { min-width: max-content; }
.row { white-space: pre; padding: 0 .7rem 0 .4rem; border-left: .25rem solid transparent; }
.row b { font-weight: 400; color: var(--soft); user-select: none; } .row u { text-decoration: none; }
.add { background: var(--add); } .del { background: var(--del); }
.add u { color: var(--agrees); } .del u { color: var(--disagrees); } .at { color: var(--soft); }
.ran { border-left-color: var(--agrees); }
.not { border-left-color: var(--unjudged); background: var(--not); }
@media (max-width: 40rem) { .row .nr { display: none; } }
"""
