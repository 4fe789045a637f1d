{#
  A model as a table of lakebed. The query runs on DuckDB, and its rows go to the table as a stream, in one commit.
  In DuckDB the model is a view of that table.
#}
{% materialization lakebed, adapter='duckdb', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set staging_relation = make_intermediate_relation(this.incorporate(type='table')) -%}
  {%- set language = model['language'] -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if language == 'python' %}
    {% do drop_relation_if_exists(load_cached_relation(staging_relation)) %}
    {% call statement('lakebed_staging', language=language) -%}
      {{ create_table_as(False, staging_relation, compiled_code, language) }}
    {%- endcall %}
    {% set query = 'select * from ' ~ staging_relation %}
  {% else %}
    {% if config.get('contract').enforced %}{{ get_assert_columns_equivalent(compiled_code) }}{% endif %}
    {% set query = compiled_code %}
  {% endif %}

  {% do lakebed.commit() %}
  {% set request = lakebed.request('write', model) %}
  {% do request.update({'sql': query, 'header': config.get('sql_header'), 'full_refresh': should_full_refresh()}) %}
  {% do request.update({'is_python': language == 'python'}) %}
  {% do lakebed.send(request, target_relation) %}

  {% if existing_relation is not none and not existing_relation.is_view %}
    {% do adapter.drop_relation(existing_relation) %}
  {% endif %}
  {% do lakebed.send(lakebed.request('show', model), target_relation) %}
  {% call noop_statement('main', request.message, request.code, request.rows) -%}
    {{ query }}
  {%- endcall %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do apply_grants(target_relation, config.get('grants'), should_revoke=True) %}
  {% do persist_docs(target_relation, model) %}
  {% if language == 'python' %}{% do adapter.drop_relation(staging_relation) %}{% endif %}
  {% do lakebed.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{# Whether the model goes on from rows that its table has: not in its first run, and not with --full-refresh. #}
{% macro is_incremental() %}
  {% if not execute or should_full_refresh() %}
    {{ return(False) }}
  {% endif %}
  {% set relation = load_cached_relation(this) %}
  {{ return(relation is not none and relation.is_view) }}
{% endmacro %}


{# Commit the transaction of this connection: what hooks and Python wrote is then there for others. #}
{% macro commit() %}
  {% if not adapter.disable_transactions() %}
    {% call statement('lakebed_commit') %}select 1{% endcall %}
    {% do adapter.commit() %}
  {% endif %}
{% endmacro %}
