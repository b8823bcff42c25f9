// What a test looks for on a page: see browser_test.go. It is evaluated by the
// test's browser and is no part of any page.
(() => {
  const visible = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible";
  const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const linear = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const background = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const brief = e => (e.textContent || e.outerHTML).trim().slice(0, 60);

  const found = { Faint: [], Tiny: [], Texts: 0, Charts: [], Tables: {}, Unnamed: [], Actives: [] };
  found.Overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  found.Title = document.title;
  found.Headings = [...document.querySelectorAll("h1,h2,h3")].map(brief);

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.data.trim() || !visible(e)) continue;
    found.Texts++;
    const style = getComputedStyle(e), svg = e.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    if (contrast(parse(svg ? style.fill : style.color), background(e)) < 4.5) found.Faint.push(brief(e));
    if (parseFloat(style.fontSize) * scale < 9) found.Tiny.push(brief(e));
  }

  for (const chart of document.querySelectorAll(".chart")) {
    if (!chart.getAttribute("aria-label")) { found.Unnamed.push(chart.outerHTML.slice(0, 60)); continue; }
    if (!visible(chart)) continue;
    const shown = [...chart.querySelectorAll(".v")].filter(visible);
    const box = shown.length ? shown[0].firstElementChild.getBoundingClientRect() : { width: 0, height: 0 };
    found.Charts.push({
      Name: chart.getAttribute("aria-label"), Visible: shown.length,
      Shown: shown.map(v => v.className.replace(/^v /, "")).join(), Width: box.width, Height: box.height,
    });
  }
  for (const figure of document.querySelectorAll("figure")) {
    const caption = document.getElementById(figure.getAttribute("aria-labelledby"));
    if (!caption || !caption.textContent.trim()) found.Unnamed.push("figure");
  }
  for (const table of document.querySelectorAll("table")) {
    const caption = document.getElementById(table.getAttribute("aria-labelledby"));
    if (!caption || !caption.textContent.trim()) { found.Unnamed.push("table"); continue; }
    found.Tables[caption.textContent] = [...table.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent).join("|"));
  }
  for (const region of document.querySelectorAll("[role=region],section,nav")) {
    if (!region.getAttribute("aria-label") && !region.getAttribute("aria-labelledby")) found.Unnamed.push(region.className);
  }
  for (const e of document.querySelectorAll("*")) {
    if (/^(script|iframe|object|embed|img|link|form|base|image|use|foreignobject)$/i.test(e.localName)) found.Actives.push(e.localName);
    for (const a of e.attributes) {
      if (/^on/i.test(a.name) || /^(src|href|xlink:href|action)$/i.test(a.name) && !a.value.startsWith("#")) {
        found.Actives.push(e.localName + " " + a.name);
        break;
      }
    }
  }
  found.Focus = [...document.querySelectorAll("[tabindex='0'],summary,a[href]")].filter(visible).length;
  return found;
})()
