// A browser lets no page that was opened as a file read the index of the search: say so, instead of searching for ever.
document.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("mkdocs-search-results");
  if (results && location.protocol === "file:") {
    results.innerHTML = "<p>Search needs a server: <code>python -m http.server -d site</code>, then open " +
      "<code>http://localhost:8000</code>. All other pages can be read as files.</p>";
  }
});
